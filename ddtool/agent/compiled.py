"""The agent's zipapp with bytecode beside its sources. Python keeps none for a zip file: each start compiled it anew,
which was more than half of a short request's time."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile

UNCHECKED = (1).to_bytes(
    4, "little"
)  # a hash-based .pyc whose source is not looked at: both come from one archive


def with_bytecode(data: bytes) -> bytes:
    """The same archive and a .pyc for each module, for this Python. Another one finds the sources as they were."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as came, zipfile.ZipFile(buffer, "w") as made:
        for item in came.infolist():
            source = came.read(item)
            made.writestr(item, source)
            if item.filename.endswith(".py"):
                code = compile(source, item.filename, "exec", dont_inherit=True)
                head = importlib.util.MAGIC_NUMBER + UNCHECKED + importlib.util.source_hash(source)
                made.writestr(
                    zipfile.ZipInfo(item.filename + "c", item.date_time), head + marshal.dumps(code)
                )
    return buffer.getvalue()
