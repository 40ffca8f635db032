"""Masks: which query may attend to which key, as values that combine with & | ~."""

from ropejax.masks.base import And as And
from ropejax.masks.base import Mask as Mask
from ropejax.masks.base import Not as Not
from ropejax.masks.base import Or as Or
from ropejax.masks.base import Visibility as Visibility
from ropejax.masks.heads import PerHead as PerHead
from ropejax.masks.local import Blocks as Blocks
from ropejax.masks.local import BlockwiseCausal as BlockwiseCausal
from ropejax.masks.local import Causal as Causal
from ropejax.masks.local import Chunked as Chunked
from ropejax.masks.local import Dilated as Dilated
from ropejax.masks.local import Full as Full
from ropejax.masks.local import Window as Window
from ropejax.masks.sparse import BigBird as BigBird
from ropejax.masks.sparse import Global as Global
from ropejax.masks.sparse import Lambda as Lambda
from ropejax.masks.sparse import Longformer as Longformer
from ropejax.masks.sparse import Marked as Marked
from ropejax.masks.sparse import Prefix as Prefix
from ropejax.masks.sparse import Random as Random
