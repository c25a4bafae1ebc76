"""Values as bytes and back: what a workflow sees is what the record holds, on the first pass as on every replay.

- `value_codec` one annotation's values, verified on the way; `arguments` those of a call
- `schema`      what is changed in pydantic's schema so that values survive; `sameness` decides that they did
- `refusals`    the sentences for those that do not
- `redaction`   what people do not get to see; `vault` the size limit and the App's own codec
"""

from __future__ import annotations

from .arguments import ArgumentsCodec, dump_untyped
from .redaction import REDACTED, Redacted
from .value_codec import ValueCodec, shown
from .vault import Codec, Vault

__all__ = ["REDACTED", "ArgumentsCodec", "Codec", "Redacted", "ValueCodec", "Vault", "dump_untyped", "shown"]
