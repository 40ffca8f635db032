r"""The recurrent networks of the Chomsky-hierarchy paper, and later ones, on its tasks.

Reproduces: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (arXiv
2207.02098), table 2: one layer of 256 units, memory cells of width 8, trained on
lengths 1 to 40 and scored on lengths 41 to 500; the best of 10 seeds and the learning
rates 1e-4, 3e-4 and 5e-4, after 1,000,000 steps. Published there: RNN and LSTM 100 on
Parity Check, Stack-RNN 100 on Reverse String, where the RNN has 62.0.

    python -m experiments.main --workdir=runs/lstm_parity \
        --config=configs/deletang.py:architecture=lstm,task=parity_check
    python -m experiments.main --workdir=runs/rnn_parity \
        --config=configs/deletang.py:architecture=rnn,task=parity_check,size=mini

`size=mini` shows the same on two CPU cores. Expected, trained on lengths 1 to 40, mean
accuracy over lengths 41 to 500: RNN and LSTM 100% on Parity Check (seeds 0, 1 and 2; a
minute of computing an RNN, two an LSTM), Stack-RNN 100% on Reverse String (seeds 0, 1
and 2; two minutes), Tape-RNN 100% on Reverse String (seed 0; five minutes).

DeltaNet and Mamba are linear recurrences that later papers compare Transformers with,
here one layer (full: 256 wide) with pre-norm, RMS norms and a gated MLP. Whether they
may track a state is a question of their eigenvalues (Grazzi et al. 2024, arXiv
2411.12537):

    python -m experiments.main --workdir=runs/delta_net_parity \
        --config.model.kind_options="negative=True" \
        --config=configs/deletang.py:architecture=delta_net,task=parity_check,size=mini

Parity Check, `size=mini`: mean accuracy over lengths 41 to 500 in %, in brackets at
lengths 1 to 40, then at 500, on two shared cores of an x86-64 machine. DeltaNet: seeds
0, 1 and 2, 3,000 steps, a minute of one core each; Mamba: seed 0, 6,000 steps, four
minutes.

                in [0, 1]                  in [-1, 1]
    DeltaNet    49.5, 48.6-51.4 (65.3)     91.7, 87.4-96.5 (100), 69.7, 59.0-83.6
    Mamba       48.9 (78.5)                95.3 (100), 75.8

So they learn it with negative eigenvalues only, and fade with length. Twice the steps
did not help DeltaNet (91.6, seed 0); after 3,000 steps at a learning rate of 3e-3,
Mamba had not learned it yet.
"""

from ml_collections import ConfigDict

from configs import arguments, base

ARCHITECTURES = ("rnn", "lstm", "stack_rnn", "tape_rnn")
LINEAR = ("delta_net", "mamba")
"""Linear recurrences, which came later than that paper."""
MINI = {
    # architecture: units, learning rate, steps
    "rnn": (32, 5e-3, 3000),
    "lstm": (32, 5e-3, 4000),
    "stack_rnn": (64, 3e-3, 2500),
    "tape_rnn": (64, 3e-3, 2500),
    "delta_net": (32, 3e-3, 3000),
    "mamba": (32, 5e-3, 6000),
}


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one architecture and task.

    Args:
        arg: any of `architecture=NAME,task=NAME,size=SIZE`; the size is full or mini.
    """
    chosen = arguments.parse(
        arg, architecture="stack_rnn", task="reverse_string", size="full"
    )
    architecture, size = chosen["architecture"], chosen["size"]
    known = ARCHITECTURES + LINEAR
    if architecture not in known or size not in ("full", "mini"):
        raise ValueError(
            f"architecture must be one of {', '.join(known)} and size full or mini, "
            f"got {architecture!r} and {size!r}."
        )
    config = base.get_config()
    config.study = "deletang2022"
    config.task.name = chosen["task"]
    config.encoding.name = "none"
    config.model.kind = architecture
    config.model.num_layers = 1
    config.model.embed_dim = 256
    config.model.dropout = 0.0
    config.optim.learning_rate = 3e-4
    config.train.steps = 1_000_000
    config.eval.draws = 1
    if architecture in LINEAR:
        config.model.pre_norm = True
        config.model.norm = "rms"
        config.model.mlp = "gated"
        config.model.activation = "silu"
    if architecture == "delta_net":
        config.model.num_heads = 4
    if size == "mini":
        units, learning_rate, steps = MINI[architecture]
        config.study = "deletang2022_mini"
        config.model.embed_dim = units
        config.optim.learning_rate = learning_rate
        config.optim.final_fraction = 0.0
        config.train.batch_size = 64
        config.train.buckets = 2
        config.train.steps = steps
        config.train.steps_per_dispatch = 100
        config.eval.lengths = "1:40:3,40,45:100:5,110:200:10,225:500:25"
        config.eval.buckets = "40,100,200,500"
        config.eval.samples = 256
    return config
