"""Every setting of an experiment: its meaning, its unit, and the papers' value.

Other configs start from this one and change a few lines, so that what a file changes is
the experiment. Names and numbers become objects in experiments/building/build.py.

Settings of a task, an encoding, a position scheme, an optimizer and so on are written
as the arguments of its class, for example `max_wavelength=5e5, layout=interleaved`;
objects as calls, for example `distance=Rectified(512)`.
`python -m experiments.main --list` shows all of them.
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def get_config(arg: str = "") -> ConfigDict:
    """Returns the settings of Ruoss et al. 2023 (arXiv 2305.16843), at plain positions.

    Args:
        arg: must be empty; configs that take an argument say so.
    """
    if arg:
        raise ValueError(f"this config takes no argument, got {arg!r}.")
    config = ConfigDict()
    config.study = ""  # name of the study that the run belongs to
    config.title = ""  # what sets the run apart, in tables and pictures: "4 layers"
    # It stands behind encoding and positions, which have titles of their own below.

    config.task = task = ConfigDict()
    task.name = "reverse_string"  # which task
    task.options = ""  # its settings
    task.title = ""  # in tables and pictures; made of name and settings if ""

    config.positions = positions = ConfigDict()
    positions.name = "consecutive"  # where tokens are said to be in training
    positions.as_published = True  # randomized: as in the paper, else one draw a pass
    # The paper: RoPE and its kin, a draw a layer; ALiBi and Transformer-XL, and what
    # is made of them, a draw of distances a layer; sinusoidal, learned: one a pass.
    positions.options = ""  # settings of the scheme; they override as_published
    positions.title = ""  # in tables and pictures; made of name and settings if ""

    config.encoding = encoding = ConfigDict()
    encoding.name = "rope"  # how a position enters the model; or compose, pretrained
    encoding.options = ""  # its settings; parts: "rope=Rotary(), scale=LogScale()"
    encoding.title = ""  # in tables and pictures; made of name and settings if ""

    config.model = model = ConfigDict()
    model.kind = "encoder"  # or decoder, encoder_decoder: read answers back; rnn, ...
    model.kind_options = ""  # settings of a kind: block=GAU(), or cross=Rotary()
    model.pretrained = ""  # folder of a Hugging Face checkpoint, which is the model
    # Of model's fields, kind=decoder, mask and how it is computed are left to set then.
    model.num_layers = 5  # layers
    model.embed_dim = 64  # width of the model, channels
    model.num_heads = 8  # attention heads; they divide embed_dim, if head_dim is None
    model.num_kv_heads = placeholder(int)  # key/value heads; num_heads if not given
    model.head_dim = placeholder(int)  # of heads; embed_dim / num_heads if not given
    model.qkv_bias = False  # projections to queries, keys and values have biases
    model.out_bias = False  # so has that of what attention returns
    model.mlp = "plain"  # form of the MLP: plain, or gated (SwiGLU with silu)
    model.mlp_options = ""  # its settings
    model.mlp_factor = 4  # width of the MLP over embed_dim
    model.mlp_dim = placeholder(int)  # that width itself, instead of the factor
    model.activation = "relu"  # of the MLP: relu, gelu, silu or tanh
    model.norm = "layer"  # what normalizes hidden states: layer or rms
    model.norm_options = ""  # its settings
    model.pre_norm = False  # normalize what enters a part, rather than each sum
    model.output_norm = False  # normalize what a part returns, before it is added
    # Then no sum is normalized: with pre_norm it is Gemma 2's way, alone OLMo 2's.
    model.residual_scale = 1.0  # factor on what a part returns, before it is added
    model.parallel = False  # attention and MLP beside each other; with pre_norm
    model.pattern = "alike"  # kinds of layers: alike, or windows between full ones
    model.pattern_options = ""  # its settings
    model.mask = ""  # what layers see, of that: "Lambda(4, 60)", "Window(8)|Global(1)"
    model.normalizer = "softmax"  # what turns logits into weights: softmax, entmax, ...
    model.normalizer_options = ""  # its settings
    model.qk_norm = "none"  # what normalizes queries and keys: none, rms, cosine, ...
    model.qk_norm_options = ""  # its settings
    model.attention_scale = placeholder(float)  # on q k; qk_norm's, 1/sqrt(H), if None
    model.row_scale = "none"  # learned factor on a query's logits: none, ssmax, ...
    model.row_scale_options = ""  # its settings
    model.token_shift = "none"  # of keys, ... by tokens before: none, kv, convolution
    model.token_shift_options = ""  # its settings
    model.output_gate = "none"  # on heads' outputs, from the input: none, sigmoid
    model.output_gate_options = ""  # its settings
    model.attention_dropout = 0.0  # probability of dropping a weight, training only
    model.loops = 1  # how often all layers are applied, with the same parameters
    model.input_injection = "none"  # embedded input added again before each loop, layer
    model.embedding_scale = placeholder(float)  # on embeddings; sqrt(embed_dim) if None
    model.embedding_norm = False  # embeddings, with positions in them, are normalized
    model.readout = "linear"  # how logits are read out: linear, or tied (embedding)
    model.readout_options = ""  # its settings
    model.causal = False  # True: a token sees itself and those before it only
    model.dropout = 0.1  # probability of dropping an element, training only
    model.dtype = "float32"  # of the computation: float32 or bfloat16
    model.remat = "none"  # computed again backward: none, full, dots (all but these)
    model.scan_layers = True  # compile one layer and loop: quick to compile

    config.optim = optim = ConfigDict()
    optim.name = "adam"  # or sgd, lion, adafactor, muon; or optax.radam, one's own
    optim.options = ""  # its settings; what is below applies to all but where it says
    optim.learning_rate = 1e-3  # peak of the schedule
    optim.warmup_steps = 0  # steps of linear rise from zero
    optim.final_fraction = 1.0  # of the peak, reached by a cosine at train.steps
    optim.weight_decay = 0.0  # decoupled, on projection kernels; Adam with it is AdamW
    optim.max_grad_norm = 1.0  # longer gradients are cut to this norm; 0: never
    optim.b1 = 0.9  # decay of Adam's first moment, per step; adam, muon
    optim.b2 = 0.999  # decay of Adam's second moment, per step; adam, muon
    optim.eps = 1e-8  # added to the root of Adam's second moment; adam, muon

    config.train = train = ConfigDict()
    train.steps = 100_000  # optimizer steps in all; a larger number extends a run
    # 0: nothing is trained, and what the run begins with is scored.
    train.init_from = ""  # run to begin with, its newest parameters; "": the seed's
    # A workdir, or WORKDIR/checkpoints/STEP; {seed} in it is train.seed.
    train.init_new = False  # parameters that such a run lacks begin as usual
    train.seed = 0  # parameters, data, positions, dropout follow from it
    train.length_seed = placeholder(int)  # the length of each step; seed if not given
    train.batch_size = 128  # sequences a step
    train.max_length = 40  # longest training input, symbols
    train.curriculum = "uniform"  # which lengths a step sees
    train.curriculum_options = ""  # its settings
    train.length_per_row = False  # a length for each row, rather than for the batch
    train.accumulate = 1  # parts of a batch, one after the other; they divide it
    train.buckets = 4  # compiled shapes for all training lengths
    train.steps_per_dispatch = 20  # steps between two looks from the host
    train.log_every = 100  # steps a point of the training curves
    train.save_every = 500  # steps between two checkpoints
    train.progressive_weight = 0.0  # of the loss after fewer loops, if model.loops > 1
    train.gradient_loops = placeholder(int)  # last loops that learn; all if not given
    train.nonfinite = "stop"  # if a loss or gradient is not finite; or skip, count
    train.keep = 3  # newest checkpoints kept, besides the best

    config.mesh = mesh = ConfigDict()
    mesh.replica = 1  # devices over which rows are spread, parameters copied
    mesh.data = 1  # the same; -1 in one of these: all devices that the others leave
    mesh.fsdp = 1  # devices over which rows, parameters and optimizer are spread
    mesh.sequence = 1  # devices over which each sequence is spread
    mesh.tensor = 1  # devices over which heads and the MLP's width are spread
    mesh.sequence_form = "ring"  # of attention: ring, all_gather or ulysses
    mesh.sequence_order = "consecutive"  # or zigzag: equal work for a causal ring
    mesh.rules = ""  # meaning of axes -> mesh axes: "embed=(fsdp, tensor), vocab=()"

    config.eval = evaluation = ConfigDict()
    evaluation.lengths = "1:500"  # input lengths, both ends included; "1,10:100:10"
    evaluation.buckets = ""  # lengths padded to, a compiled shape each; "": chosen
    evaluation.samples = 512  # sequences a length
    evaluation.draws = 8  # draws of positions a length; they divide samples
    evaluation.seed = 1  # of examples and positions
    evaluation.positions = placeholder(str)  # at test time; else those of training
    evaluation.options = ""  # its settings; those not given are those of training

    return config
