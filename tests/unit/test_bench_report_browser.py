"""The page in a real browser: nothing overflows, no two words of a drawing lie on each other."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.bench_examples import example

from ddtool.bench import report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

# A page has no script of its own, so a copy of it gets one; a frame, because a window cannot be as narrow as a phone.
PROBE = """<script>addEventListener("load", () => {
  const found = {inner: innerWidth, scroll: document.documentElement.scrollWidth, overlaps: [], outside: []};
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect(), name = svg.getAttribute("aria-label").slice(0, 40);
    const words = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim())
      .map(t => [t.textContent, t.getBoundingClientRect()]);
    words.forEach(([text, a], i) => {
      if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1 || a.bottom > box.bottom + 1)
        found.outside.push([name, text]);
      for (const [other, b] of words.slice(i + 1))
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) found.overlaps.push([name, text, other]);
    });
  }
  parent.postMessage(JSON.stringify(found), "*");
});</script></head>"""
FRAME = """<script>addEventListener("message", e => {
  const told = document.createElement("pre"); told.id = "told"; told.textContent = e.data; document.body.append(told);
});</script><body><iframe src="page.html" style="border: 0; width: WIDTHpx; height: 900px"></iframe>"""


def seen(page: str, width: int, folder: Path) -> dict[str, Any]:
    """What the probe says of a page in a frame so wide."""
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</head>", PROBE)
    (folder / "page.html").write_text(probed, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    options += ["--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *options, (folder / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)
    assert told is not None, done.stderr
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(("name", "tune"), [("result", "tune"), ("ugly", None)])
def test_nothing_overflows_or_overlaps(name: str, tune: str | None, width: int, tmp_path: Path) -> None:
    found = seen(report.html(example(name), example(tune) if tune else None), width, tmp_path)
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["overlaps"] == []
    assert found["outside"] == []
