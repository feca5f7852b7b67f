"""`rljob validate`: the API server's verdict on an RLJob, and what only its model and data can show, without a cluster.

`admit` follows the API server step by step and runs the very rules of the CRD; `validate` then reads the files the
job points at, by the code the workers use.
"""

from rljob_operator.validation.admission import Admission, Verdict, admit, check_file, validate
from rljob_operator.validation.files import FileReader, with_absolute_paths
from rljob_operator.validation.problem import Problem

__all__ = ["Admission", "FileReader", "Problem", "Verdict", "admit", "check_file", "validate", "with_absolute_paths"]
