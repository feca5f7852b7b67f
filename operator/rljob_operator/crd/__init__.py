"""The RLJob CRD and the field reference, both generated from the pydantic models."""

from rljob_operator.crd.definition import definition, definition_yaml
from rljob_operator.crd.reference import reference
from rljob_operator.crd.schema import UnsupportedSchemaError, object_schema, structural

__all__ = ["UnsupportedSchemaError", "definition", "definition_yaml", "object_schema", "reference", "structural"]
