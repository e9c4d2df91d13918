"""Remembers answers by idempotency key (README, "An answer and its key").

The answers are kept in the workload's declaration, for a limited time and number.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from planner.core.knowledge.declared import answer_bytes
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from spillway.api import PlacementReply, invalid_argument_error
from spillway.compressed_text import pack_text, unpack_text
from spillway.events import WorkloadDeclared
from spillway.former_words import VERB_BY_FORMER_VERB, with_fields_of_today
from spillway.model import Answered

KEY_LENGTH_MAX = 128
PLAIN_BYTES_MAX: Final = 2048
"""The most bytes of an answer that is kept as JSON, which earlier versions read, too. A longer one is compressed."""


def request_digest(verb: str, *texts: str) -> str:
    digest = hashlib.sha256(verb.encode())
    for text in texts:
        digest.update(b"\0" + hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def remembered_answer(
    rules: PlannerRules, known: Workload | None, key: str, digest: str, moment: Moment
) -> PlacementReply | None:
    """Returns the answer that a request with this key got before, without its inputs; None for a new key.

    Raises RequestError (INVALID_ARGUMENT) when the key was used for another request.
    """
    if len(key) > KEY_LENGTH_MAX:
        raise invalid_argument_error("idempotency_key", key, f"at most {KEY_LENGTH_MAX} characters")
    if not key or known is None:
        return None
    for entry in _fresh_answers(known.declared.answered, rules, moment):
        if entry.key == key:
            if _digest_of_today(entry.request_digest) != digest:
                raise invalid_argument_error("idempotency_key", key, "a new key: this key was used for another request")
            return _decode_answer(entry.answer)
    return None


def with_answer_added(
    rules: PlannerRules, declared: WorkloadDeclared, key: str, digest: str, reply: PlacementReply, moment: Moment
) -> WorkloadDeclared:
    """Returns the declaration with this answer added, if the request has a key."""
    if key:
        entry = Answered(key, digest, moment.wall_ms, _encode_answer(reply))
        declared = replace(declared, answered=(*declared.answered, entry))
    return without_old_answers(rules, declared, moment)


def without_old_answers(rules: PlannerRules, declared: WorkloadDeclared, moment: Moment) -> WorkloadDeclared:
    """Returns the declaration without answers that are too old or exceed the limits on their number and bytes.

    Every writer of a declaration calls this. The oldest answers go first. The newest is always kept, since its caller
    may still ask again.
    """
    fresh = list(_fresh_answers(declared.answered, rules, moment))[-rules.keys_kept_max :]
    size = 0
    for index in reversed(range(len(fresh))):
        size += answer_bytes(fresh[index])
        if size > rules.answers_bytes_max and index < len(fresh) - 1:
            fresh = fresh[index + 1 :]
            break
    return replace(declared, answered=tuple(fresh)) if len(fresh) != len(declared.answered) else declared


def _fresh_answers(answered: Iterable[Answered], rules: PlannerRules, moment: Moment) -> Iterable[Answered]:
    return (entry for entry in answered if moment.wall_ms - entry.at_ms < rules.key_kept * 1000)


def _encode_answer(reply: PlacementReply) -> bytes:
    """Returns the answer as bytes to keep, without the inputs of each cluster, which the decision's record has."""
    text = msgspec.json.encode(replace(reply, inputs=()))
    return text if len(text) <= PLAIN_BYTES_MAX else pack_text(text)


def _decode_answer(answer: bytes) -> PlacementReply:
    """Reads an answer of this version or an earlier one. Earlier ones also kept inputs and used other words."""
    text = with_fields_of_today(answer if answer.startswith(b"{") else unpack_text(answer))
    return replace(msgspec.json.decode(text, type=PlacementReply), inputs=())


_DIGEST_BY_FORMER_DIGEST: Final = {
    request_digest(former): request_digest(verb) for former, verb in VERB_BY_FORMER_VERB.items()
}
"""The present digests of requests that consist of their verb alone, by the digest of the verb's former name."""


def _digest_of_today(digest: str) -> str:
    return _DIGEST_BY_FORMER_DIGEST.get(digest, digest)
