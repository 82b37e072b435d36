"""`python -m sglang.launch_server --config FILE`, with SGLang's order: plugins, arguments, server."""

import sys

if __name__ == "__main__":
    from sglang.srt.plugins import load_plugins

    load_plugins()

    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.server_args import prepare_server_args

    launch_server(prepare_server_args(sys.argv[1:]))
