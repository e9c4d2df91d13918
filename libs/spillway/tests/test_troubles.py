"""Codes of troubles: the numbers of the log, and what is made of records from before there were codes."""

import pytest

from spillway.troubles import SIGNS_OF_LOSS, TroubleCode, code_of_reason, code_of_record
from spillway.v1 import events_pb2


def test_the_numbers_are_those_of_the_log() -> None:
    numbers = {code.name: code.value for code in TroubleCode}
    assert numbers == {name.removeprefix("TROUBLE_CODE_"): number for name, number in events_pb2.TroubleCode.items()}


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("credential", TroubleCode.NOT_ALLOWED),
        ("unauthorized", TroubleCode.NOT_ALLOWED),
        ("forbidden", TroubleCode.NOT_ALLOWED),
        *[(reason, TroubleCode.UNREACHABLE) for reason in ("timeout", "connection", "garbage", "server", "closed")],
    ],
)
def test_only_what_our_credential_lacks_is_no_sign_of_loss(reason: str, code: TroubleCode) -> None:
    assert code_of_reason(reason) == code
    assert (code in SIGNS_OF_LOSS) == (code is TroubleCode.UNREACHABLE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", TroubleCode.UNSPECIFIED),
        ("nodes: unauthorized: who are you?", TroubleCode.NOT_ALLOWED),
        ("persistentvolumes: forbidden: cannot list", TroubleCode.NOT_ALLOWED),
        ("connect: credential: own-1: no such file", TroubleCode.NOT_ALLOWED),
        ("capacity: unwritable: CapacityReported own-1/0: 3000000 bytes", TroubleCode.UNWRITABLE),
        ("pods: timeout: no answer", TroubleCode.UNREACHABLE),
        ("pods: nothing heard for 90 s", TroubleCode.UNREACHABLE),
        ("the list of nodes lost 5 of 6; not believed yet", TroubleCode.UNREACHABLE),
        ("nodes: garbage: unwritable: forbidden", TroubleCode.UNREACHABLE),
    ],
)
def test_a_record_of_an_older_version_is_judged_by_its_reason_as_it_was_then(text: str, code: TroubleCode) -> None:
    assert code_of_record(0, text) == code


def test_a_code_goes_before_the_text_also_one_of_a_newer_version() -> None:
    assert code_of_record(TroubleCode.UNREACHABLE, "nodes: forbidden: no") == TroubleCode.UNREACHABLE
    assert code_of_record(99, "nodes: forbidden: no") == 99
