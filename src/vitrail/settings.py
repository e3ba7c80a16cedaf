"""Base of all configurations: frozen, serializable as JSON, and an unknown key is an error that names the nearest known key."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from reprlib import Repr
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator

from vitrail.errors import ConfigError, nearest


def numbers(value: Any) -> Any:
    """Return a tuple of the text ``2,2,6,2`` of the command line, or of one number; return any other value unchanged."""
    if isinstance(value, str):
        return tuple(value.split(","))
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Settings(BaseModel):
    """Base of every configuration. Build one from unchecked input with `read`, whose errors are `ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse True for a number: a flag without a value arrives as True, and pydantic would convert it to 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("it needs a value, not true or false")
        return value

    @classmethod
    def read(cls, values: Mapping[str, Any], *, where: str = "") -> Self:
        """Validate ``values``; raises `ConfigError` with the key's dotted path, which begins with ``where``."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            errors = error.errors()
            unknown = [e for e in errors if e["type"] == "extra_forbidden"]
            raise cls._explain((unknown or errors)[0], where, values) from None

    @classmethod
    def read_field(cls, name: str, value: Any, *, where: str = "") -> Any:
        """Validate one field by itself; raises `ConfigError`."""
        try:
            return _adapter(cls, name).validate_python(value)
        except ValidationError as error:
            raise cls._explain({**error.errors()[0], "loc": (name,)}, where, {name: value}) from None

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with some fields replaced (pydantic's own ``model_copy`` does not validate)."""
        return type(self).read({**self.model_dump(), **values})

    @classmethod
    def _explain(cls, error: Any, where: str, values: Mapping[str, Any]) -> ConfigError:
        path = [str(part) for part in (error["loc"] if error["type"] == "missing" else _keys(error["loc"], values))]
        dotted = ".".join([where, *path] if where else path)
        if error["type"] == "extra_forbidden":
            known = list(_section(cls, path[:-1]).model_fields)
            close = nearest(path[-1], known)
            hint = (f"did you mean {close!r}? " if close else "") + "known here: " + ", ".join(known)
            return ConfigError(f"unknown setting {path[-1]!r}", where=dotted, hint=hint)
        if error["type"] == "missing":
            return ConfigError(f"{dotted} is missing", where=dotted, hint=f"set {dotted}")
        message = error["msg"].removeprefix("Value error, ")
        what = f"{dotted} cannot be {brief(error['input'])}"
        if error["type"] == "literal_error":
            choices = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            close = nearest(str(error["input"]), choices)
            message += f"; did you mean {close!r}?" if close else ""
        return ConfigError(what, where=dotted, hint=message[0].lower() + message[1:])


def _keys(places: Sequence[str | int], values: Any) -> list[str | int]:
    """Return those keys of pydantic's error location that exist in ``values``; the others are names of types in a union."""
    keys = []
    for place in places:
        with suppress(TypeError, LookupError):
            values = values[place]
            keys.append(place)
    return keys


@cache
def _adapter(cls: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """Return the validator of one field; cached, since building it is slower than using it."""
    field = cls.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(kind)


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxstring, _SHORT.maxother = 2, 3, 3, 3, 60, 60


def brief(value: Any) -> str:
    """Return the repr of a value for an error message, shortened if it is large or deeply nested."""
    return _SHORT.repr(value)


def _section(cls: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Return the settings class at ``path``, a list of field names below ``cls``; names that are no fields are skipped."""
    for name in path:
        if name not in cls.model_fields:
            continue
        annotation: Any = cls.model_fields[name].annotation
        choices = [annotation, *get_args(annotation)]
        cls = next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), cls)
    return cls
