"""Uses the client against a daemon: a test of Ashlar starts it with a daemon that has one LUN.

check.py URL CA ADMIN_TOKEN VIEWER_TOKEN SOCKET CONFIGURATION
"""

import sys
from collections.abc import Callable
from pathlib import Path

from ashlar_client.api.classes import disk_list, disk_resize
from ashlar_client.api.routes import get_state
from ashlar_client.api.verbs import plan, status
from ashlar_client.connect import (
    AnyClient,
    RefusedError,
    answered,
    apply,
    events,
    over_network,
    over_socket,
    wait_for_luns,
)
from ashlar_client.models import (
    ApplyAnswer,
    DiskResizeParams,
    Event,
    GeomListParams,
    Health,
    Kind,
    PlanParams,
    StatusParams,
)

MORE = '[[disk]]\nname = "extra"\nkind = "memory"\nsize = "8MiB"\n'


def refusal(call: Callable[[], object]) -> Kind:
    """The kind of the refusal of a call that must be refused."""
    try:
        call()
    except RefusedError as refused:
        return refused.error.kind
    raise AssertionError("the call was not refused")


def number(event: Event) -> int:
    """The number of an event, which each one has."""
    if not isinstance(event.id, int):
        raise AssertionError("an event has no number")
    return event.id


def check(name: str, is_right: bool) -> None:
    if not is_right:
        raise AssertionError(name)
    print(f"ok {name}")


def main(
    url: str, ca: str, admin_token: str, viewer_token: str, socket: str, configuration: str
) -> None:
    admin, viewer = (over_network(url, token, ca=ca) for token in (admin_token, viewer_token))
    now = answered(status.sync_detailed(client=viewer, body=StatusParams()))
    check("status", isinstance(now.health, Health) and not now.starting)
    state = answered(get_state.sync_detailed(client=viewer))
    luns = [
        lun
        for target in state.targets or []
        for group in target.groups or []
        for lun in group.luns or []
    ]
    check("luns", [(lun.lun, lun.provider) for lun in luns] == [(0, "d0")])

    listed = answered(disk_list.sync_detailed(client=viewer, body=GeomListParams(names=["d0"])))
    check("verb of a class", [geom.name for geom in listed.geoms] == ["d0"])
    resize = DiskResizeParams(name="d0")
    kind = refusal(lambda: answered(disk_resize.sync_detailed(client=viewer, body=resize)))
    check("viewer is refused a verb of a class", kind is Kind.FORBIDDEN)

    document = Path(configuration).read_text(encoding="utf-8") + MORE
    params = PlanParams(document=document, file=configuration)
    planned = answered(plan.sync_detailed(client=admin, body=params))
    # An action is one of many classes.
    added = [step.to_dict()["action"]["disk"]["name"] for step in planned.steps]
    check("plan", added == ["extra"])

    def change(client: AnyClient, generation: int) -> ApplyAnswer:
        return apply(client, document, file=configuration, if_generation=generation)

    forbidden = refusal(lambda: change(viewer, planned.generation))
    check("viewer is refused", forbidden is Kind.FORBIDDEN)
    stale = refusal(lambda: change(admin, planned.generation + 1))
    check("another generation is refused", stale is Kind.STALE)
    applied = change(admin, planned.generation)
    check("apply", applied.changed and applied.generation > planned.generation)
    wait_for_luns(admin)
    repeated = refusal(lambda: change(admin, planned.generation))
    check("a repeated apply is refused", repeated is Kind.STALE)

    stream = events(viewer)
    first, second = next(stream), next(stream)
    check("events", number(second) == number(first) + 1)
    resumed = next(events(viewer, after=number(first)))
    check("events resume", number(resumed) == number(second))
    state = answered(get_state.sync_detailed(client=over_socket(socket)))
    check("socket", "extra" in [disk.name for disk in state.disks or []])


if __name__ == "__main__":
    main(*sys.argv[1:])
