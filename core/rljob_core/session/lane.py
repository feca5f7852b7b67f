"""A lane: the prompts of one kind (training or evaluation) and their samples, from offer to finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rljob_core.api.messages import CompletePrefill, CompleteRollout, TableName
from rljob_core.dispatch import decode_priority
from rljob_core.distqueue import Table
from rljob_core.session.records import Batch, Prompt, Sample
from rljob_core.session.settings import Settings

_Tokens = tuple[int, tuple[int, ...]]


class Lane:
    """Tables of prompts to prefill and of samples to decode. Static dispatch: partition = prompt index modulo groups.

    A sample becomes ready when its prompt's KV lies in the store under the serving version. After a new version, the
    prompts that still have undecoded samples are prefilled again: KV of another version is never used (rl.md 5, 6).
    Prompts with the same tokens (in one partition) share one prefill: the others wait for it.
    """

    def __init__(self, settings: Settings, table: TableName, group_size: int) -> None:
        self._settings, self.table, self.group_size = settings, table, group_size
        self.prompts, self.samples = Table(), Table()
        self._by_id: dict[int, Prompt] = {}
        self._same: dict[_Tokens, list[int]] = {}
        """Prompts in work by partition and tokens."""
        self._prefilling: dict[_Tokens, int] = {}
        """The one of them that is in the prompt table."""
        self._dispatched: dict[int, int] = {}
        self._key_users: dict[str, int] = {}
        self.garbage: list[str] = []
        """Store keys nobody needs any more."""

    def partition(self, prompt_id: int) -> int:
        return prompt_id % self._settings.rollout_groups if self._settings.deterministic else 0

    def prompt_of(self, row: int) -> Prompt:
        return self._by_id[row // self.group_size]

    def rows_of(self, prompt_id: int) -> range:
        return range(prompt_id * self.group_size, (prompt_id + 1) * self.group_size)

    def offer(self, batch: Batch) -> None:
        """All prompts of a batch are to be prefilled; their samples wait for it."""
        for position, prompt in enumerate(batch.prompts):
            self._by_id[prompt.prompt_id] = prompt
            self._same.setdefault(self._tokens(prompt), []).append(prompt.prompt_id)
            prompt.open_rows = self.group_size
            priorities = [
                decode_priority(
                    position,
                    sample,
                    batch=batch.index,
                    prompts=len(batch.prompts),
                    group_size=self.group_size,
                    deterministic=self._settings.deterministic,
                )
                for sample in range(self.group_size)
            ]
            rows = self.rows_of(prompt.prompt_id)
            partitions = [self.partition(prompt.prompt_id)] * self.group_size
            self.samples.offer(rows, priorities, partitions=partitions, ready=False)
            self._prefill(prompt)

    @property
    def undispatched(self) -> bool:
        """Some prompt waits for prefill, or some sample waits for a group."""
        return len(self.prompts) > 0 or len(self.samples) > self.samples.leased

    def forget_kv(self) -> None:
        """A new version serves: prompts with samples that nobody decodes yet go back to prefill."""
        stale = [prompt for prompt in self._by_id.values() if prompt.kv_key]
        for prompt in stale:
            prompt.kv_key = ""
        for prompt in stale:
            rows = [row for row in self.rows_of(prompt.prompt_id) if row in self.samples]
            waiting = any(self.samples.is_ready(row) for row in rows)
            self.samples.set_ready(rows, False)
            if waiting:
                self._prefill(prompt)

    def dispatched(self, rows: Sequence[int], version: int) -> None:
        """Remember under which version rows went out."""
        self._dispatched.update(dict.fromkeys(rows, version))

    def returned(self, rows: Iterable[int]) -> None:
        """Rows came back undone; where KV of the serving version is missing by now, it is to be made again."""
        for prompt_id in sorted({row // self.group_size for row in rows}):
            self._prefill(self._by_id[prompt_id])

    def _tokens(self, prompt: Prompt) -> _Tokens:
        return self.partition(prompt.prompt_id), tuple(prompt.token_ids)

    def _prefill(self, prompt: Prompt) -> None:
        """Its samples need KV: that of a prompt with the same tokens, or its own to be made."""
        if prompt.kv_key:
            return
        tokens, number = self._tokens(prompt), prompt.prompt_id
        key = next((k for k in (self._by_id[same].kv_key for same in self._same[tokens]) if k), "")
        if key:
            self._has_kv(prompt, key)
        elif tokens not in self._prefilling:
            self._prefilling[tokens] = number
            self.prompts.offer([number], [number], partitions=[tokens[0]])

    def renew(self, worker: int, deadline: float) -> None:
        """A worker is alive: it keeps its rows."""
        self.prompts.renew(worker, deadline)
        self.samples.renew(worker, deadline)

    def expire(self, now: float) -> None:
        """Leases that ran out return their rows."""
        self.prompts.expire(now)
        self.returned(self.samples.expire(now))

    def release(self, worker: int) -> None:
        """A lost worker's rows return."""
        self.prompts.release_consumer(worker)
        self.returned(self.samples.release_consumer(worker))

    def complete_prefill(self, message: CompletePrefill, serving: int) -> int:
        """Make the samples of prefilled prompts ready. KV of another version is refused, its prompts wait again.

        Returns the number accepted.
        """
        if message.version != serving:
            self.prompts.release(message.rows, message.attempts)
            self.garbage += [k for k in message.kv_keys if k not in self._key_users]
            return 0
        accepted = self.prompts.commit(message.rows, message.attempts)
        for prompt_id, key, good in zip(message.rows, message.kv_keys, accepted, strict=True):
            if not good:
                if prompt_id not in self.prompts and key not in self._key_users:
                    self.garbage.append(key)
                continue  # otherwise whoever holds the prompt now writes the same key
            tokens = self._tokens(self._by_id[prompt_id])
            del self._prefilling[tokens]
            for same in self._same[tokens]:
                self._has_kv(self._by_id[same], key)
        return sum(accepted)

    def _has_kv(self, prompt: Prompt, key: str) -> None:
        prompt.kv_key = key
        if key not in prompt.kv_keys:
            prompt.kv_keys.append(key)
            self._key_users[key] = self._key_users.get(key, 0) + 1
        self.samples.set_ready(row for row in self.rows_of(prompt.prompt_id) if row in self.samples)

    def complete_rollout(self, message: CompleteRollout) -> list[Sample | None]:
        """Finished samples, None where the lease is over or the version is not the one handed out (rl.md 20)."""
        finished: list[Sample | None] = []
        for slot, (row, attempt) in enumerate(zip(message.rows, message.attempts, strict=True)):
            version = self._dispatched.get(row)
            if version != message.first_versions[slot] or version != message.last_versions[slot]:
                self.samples.release([row], [attempt])
                self.returned([row] if row in self.samples else [])
                finished.append(None)
            elif not self.samples.commit([row], [attempt])[0]:
                finished.append(None)
            else:
                finished.append(self._finish(message, slot))
        return finished

    def _finish(self, message: CompleteRollout, slot: int) -> Sample:
        row = message.rows[slot]
        del self._dispatched[row]
        prompt = self.prompt_of(row)
        prompt.open_rows -= 1
        if not prompt.open_rows:
            self._release_kv(prompt)
        return Sample(
            row=row,
            prompt_id=prompt.prompt_id,
            index=row % self.group_size,
            first_version=message.first_versions[slot],
            last_version=message.last_versions[slot],
            prompt_tokens=message.prompt_lengths[slot],
            response_tokens=message.response_lengths[slot],
            finish_reason=message.finish_reasons[slot],
            pack_key=message.pack_key,
            slot=slot,
        )

    def _release_kv(self, prompt: Prompt) -> None:
        """The last sample of a prompt is done: forget it, and KV that no other prompt uses."""
        del self._by_id[prompt.prompt_id]
        tokens = self._tokens(prompt)
        self._same[tokens].remove(prompt.prompt_id)
        if self._prefilling.get(tokens) == prompt.prompt_id:
            del self._prefilling[tokens]
            self.prompts.remove([prompt.prompt_id])
            for same in self._same[tokens]:
                self._prefill(self._by_id[same])
        if not self._same[tokens]:
            del self._same[tokens]
        for key in prompt.kv_keys:
            self._key_users[key] -= 1
            if not self._key_users[key]:
                del self._key_users[key]
                self.garbage.append(key)
