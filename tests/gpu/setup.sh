# Sourced on the GPU machine, in the repository's root:  . tests/gpu/setup.sh
# Takes the carried part in. Once all parts have arrived: unpacks them, installs SGLang beside the machine's own Python, and
# writes the engine where SGLang finds its plugin. Says what is missing, and fails, while parts are.
export GPU_HOME=${GPU_HOME:-/tmp/ddtool-gpu}
export PAIR=$GPU_HOME/pair
mkdir -p "$GPU_HOME/parts"
cp .bundle-[0-9]*/part-* .bundle-[0-9]*/parts.json "$GPU_HOME/parts/" 2>/dev/null || true

_wanted=$(sed 's/[^0-9]//g' "$GPU_HOME/parts/parts.json" 2>/dev/null)
_parts=$(ls "$GPU_HOME"/parts/part-* 2>/dev/null | wc -l)
if [ "$_parts" != "${_wanted:-none}" ]; then
  echo "setup.sh: $_parts of ${_wanted:-an unknown number of} parts are here; carry the others, one a call." >&2
  return 1
fi
if [ ! -e "$GPU_HOME/installed" ]; then
  cat $(ls "$GPU_HOME"/parts/part-* | sort -V) | tar -xJ -C "$GPU_HOME" &&
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$GPU_HOME/site" "$GPU_HOME"/wheels/*.whl &&
    tar -xJf "$GPU_HOME/wheels/sgl_kernel.tar.xz" -C "$GPU_HOME/site" &&
    touch "$GPU_HOME/installed" || return 1
fi
python3 tests/gpu/install_engine.py "$GPU_HOME/engine" || return 1
export PYTHONPATH=$GPU_HOME/engine:$GPU_HOME/site
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 FLASHINFER_DISABLE_VERSION_CHECK=1 PYTHONUNBUFFERED=1
