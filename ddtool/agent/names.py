"""Names by which the agent and the plans made for it know ddtool's own files."""

HEADER = "# managed by ddtool"  # the first line of a unit that ddtool wrote begins so
GATE_DROP_IN_FILE = "ddtool-gate.conf"
