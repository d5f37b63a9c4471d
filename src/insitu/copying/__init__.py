"""Native copies: an archive, or what is selected or computed of it, in chunks of another grid.

| module | provides |
|---|---|
| `sweeps` | the plan: in which boxes an array is read, so that each source chunk is decoded once |
| `choose_chunks`, `choose_codecs` | chunks and codecs of the target |
| `encode` | values to the bytes of a chunk or shard |
| `stored_forms`, `repacking` | what is stored of each variable, so that xarray shows the same values |
| `target_arrays` | the arrays of the target, checked before anything is written |
| `journal`, `object_writers` | which objects of the target are finished, and where they are written |
| `copy_boxes`, `two_passes` | reads boxes, encodes and writes their objects |
| `targets`, `zarr_target` | how a target appears, whole or not at all |
| `append_plan`, `append_forms` | what is new in comparison with a target, in the form in which it stores it |
| `append_documents`, `append_targets` | how it is added to the target |
| `copy_plan` | what a copy does, before it is done |
| `copy_tree` | all of it |
| `split_copy`, `target_pattern` | the same for each target of a pattern |
| `advise`, `sized_chunks` | what typical reads take, as the archive is and in other chunks |
"""

from insitu.copying.advise import Advice, Pattern, PatternCost, advise
from insitu.copying.choose_chunks import Chunks
from insitu.copying.copy_options import CopyOptions, parse_memory
from insitu.copying.copy_plan import CopyPlan
from insitu.copying.copy_tree import CopyReport
from insitu.copying.split_copy import SplitPlan, run_copy
from insitu.copying.stored_forms import placeholder

__all__ = [
    "Advice",
    "Chunks",
    "CopyOptions",
    "CopyPlan",
    "CopyReport",
    "Pattern",
    "PatternCost",
    "SplitPlan",
    "advise",
    "parse_memory",
    "placeholder",
    "run_copy",
]
