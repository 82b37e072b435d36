"""The step that asks plain decoding about answers which differ from its own: how likely was each of the two tokens?"""

from __future__ import annotations

from typing import Any, Dict, List

from . import client, prompt_ids, releases
from .errors import Unhealthy
from .gate import Gate
from .run import Run
from .steps import Before, Step

Json = Dict[str, Any]


class Judge(Step):
    """args `run`, `release`, `gate`, `prompts` (by hash: `{text}`, `{messages}` or `{input_ids}`), `questions` (by any
    key: `{prompt, said}`): a prompt's hash and the token ids said so far; `body`: of the question, without its ids.

    The result's `bench` says whose questions they are, as that of a benchmark does; its `judged` has the answers, by
    key: /generate's `output_top_logprobs`.
    """

    def title(self, run: Run) -> str:
        return f"ask plain decoding about {len(self.args['questions'])} answers"

    def do(self, run: Run, before: Before) -> None:
        run.note(bench={"run": self.args["run"]})
        gate = releases.with_api_key(run.ctx, run.unit, self.args["release"], self.args["gate"])
        Gate(run.unit, gate, run.emit).wait_healthy()
        ids: Dict[str, List[int]] = {}
        judged = {}
        for key, question in self.args["questions"].items():
            name = question["prompt"]
            if name not in ids:
                ids[name] = prompt_ids.ids_of(
                    self.args["prompts"][name], lambda path, body: self._post(gate, path, body)
                )
            body = {**self.args["body"], "input_ids": [*ids[name], *question["said"]]}
            answer = self._post(gate, "/generate", body)
            judged[key] = (answer.get("meta_info") or {}).get("output_top_logprobs")
        run.note(judged=judged)

    def _post(self, gate: Json, path: str, body: Json) -> Json:
        try:
            answer = client.request(
                gate["address"], gate["port"], path, body, gate.get("api_key"), gate["request_s"]
            )
        except OSError as error:
            raise Unhealthy(f"the service that should judge does not answer {path}: {error}") from error
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise Unhealthy(f"the service that should judge answers {path} with {answer.status}")
        return answer.body
