"""`bench` and `tune`: is the tree worth it on this machine? Arms, workloads, runs on the host, numbers and reports."""
