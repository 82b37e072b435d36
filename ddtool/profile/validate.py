"""Can a profile work? Answered before a host is touched, from the profile and SGLang's source alone.

A refusal is known to fail, or to run as something else than asked. A warning is a setting without effect, or
one that ddtool knows nothing of. Each says why, and what to do instead.
"""

from __future__ import annotations

from ddtool.errors import ProfileError
from ddtool.profile import checks_machine, checks_model
from ddtool.profile.findings import Finding
from ddtool.profile.schema import Profile


def validate(profile: Profile) -> list[Finding]:
    """Every finding, refusals first."""
    rules = (
        checks_model.network,
        checks_model.provider,
        checks_model.attention,
        checks_model.tree_settings,
        checks_model.division,
        checks_model.pair,
        checks_machine.graphs,
        checks_machine.memory,
        checks_machine.flags,
        checks_machine.expected_speed,
    )
    found = [finding for rule in rules for finding in rule(profile)]
    return sorted(found, key=lambda finding: ("refuse", "warn", "note").index(finding.level))


def require_valid(profile: Profile) -> list[Finding]:
    """The findings that are no refusal. Raises ProfileError with every refusal."""
    found = validate(profile)
    refused = [finding for finding in found if finding.level == "refuse"]
    if refused:
        raise ProfileError(
            f"the profile {profile.name} cannot work:\n" + "\n".join(map(str, refused)),
            hint=f"ddtool profile validate {profile.name}",
        )
    return found
