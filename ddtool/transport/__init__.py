"""How ddtool reaches a host: a Host seam, ssh (paramiko fed by `ssh -G`) and local, and the agent's client."""
