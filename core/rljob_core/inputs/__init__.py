"""What a user brings (model, data, reward), read, checked and turned into prompts. Pure: files come by callback."""

from rljob_core.inputs.data_file import DataFile
from rljob_core.inputs.generators import Split, generate
from rljob_core.inputs.hugging_face import Reader, TokenizerFacts
from rljob_core.inputs.job_inputs import (
    Streams,
    check_all,
    open_streams,
    read_model_config,
    tokenizer_directory,
    tokenizer_field,
)
from rljob_core.inputs.rewards import exact_match, per_position, split_entry_point
from rljob_core.inputs.rows import PromptRow, parse_json_lines
from rljob_core.inputs.stream import PromptStream
from rljob_core.inputs.tokenizer import CharacterTokenizer, Codec, Encoder
from rljob_core.inputs.weight_files import check_weight_files, weight_file_names

__all__ = [
    "CharacterTokenizer",
    "Codec",
    "DataFile",
    "Encoder",
    "PromptRow",
    "PromptStream",
    "Reader",
    "Split",
    "Streams",
    "TokenizerFacts",
    "check_all",
    "check_weight_files",
    "exact_match",
    "generate",
    "open_streams",
    "parse_json_lines",
    "per_position",
    "read_model_config",
    "split_entry_point",
    "tokenizer_directory",
    "tokenizer_field",
    "weight_file_names",
]
