"""How ddtool reaches a host: a Host seam, ssh (paramiko fed by `ssh -G`) and local, and the agent's client."""

import sys

# paramiko imports invoke, and with it unittest.mock and asyncio, for `Match exec` in a reader of ssh_config that is
# never asked here (`ssh -G` is): a tenth of a short command's time.
sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]
