"""What the simulator found in the engine, each told again as a story of its own."""

from __future__ import annotations

from .stories import SECOND, Story, told


def test_a_fork_waits_for_events_under_its_own_id() -> None:
    async def story(it: Story) -> None:
        await it.worker()
        await it.start(["seq", [["wait", "go", 0], ["sleep", 50], ["wait", "on", 0]]])
        await it.people.send("run1", "go")
        await it.wait(SECOND)
        await it.people.fork(it.people.runs["run1"], 1)

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_an_attempt_given_up_by_the_advance_that_hung_does_not_hold_the_run_again() -> None:
    hangs = ["seq", [["step", "work", "a", 0, 100], ["hang", "a"]]]

    async def story(it: Story) -> None:
        await it.worker()
        await it.start(["seq", [["first", [hangs, ["step", "work", "b", 0, 3000]]], ["step", "quick", "c", 0, 0]]])
        await it.until("run1", "held")

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_a_cancel_accepted_after_the_last_outcome_was_saved_alone_ends_the_run_cancelled() -> None:
    async def story(it: Story) -> None:
        await it.worker()
        await it.start(["seq", [["step", "work", "a", 0, 100], ["hang", "a"]]])
        await it.until("run1", "held")
        await it.people.cancel(it.people.runs["run1"])

    verdict = told(story, end="cancelled")

    assert verdict.ok, verdict.report()


def test_a_transactional_step_spends_no_attempt_while_the_store_is_out_of_reach() -> None:
    async def story(it: Story) -> None:
        await it.start(["seq", [["step", "booked", f"a{number}", 0, 0] for number in range(6)]])
        await it.worker()
        it.world.rates.unavailable = 0.8
        await it.wait(20 * SECOND)

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_a_transactional_step_withdrawn_before_it_began_keeps_no_slot_and_no_writer() -> None:
    race = ["first", [["step", "booked", "{}", 0, 0], ["step", "quick", "{}", 0, 0]]]
    races = [[race[0], [[*node[:2], f"{node[1]}{turn}", *node[3:]] for node in race[1]]] for turn in range(6)]

    async def story(it: Story) -> None:
        process = await it.worker()
        await it.start(["seq", [*races, ["step", "work", "last", 0, 10]]])
        await it.until("run1", "succeeded")
        assert it.world.workers[process.pid].engine.slots.used == 0

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_a_worker_that_cannot_know_what_it_claimed_leaves_no_run_behind() -> None:
    async def story(it: Story) -> None:
        await it.worker()
        it.world.rates.unanswered = "claim"
        await it.start(["seq", [["step", "work", "a", 0, 50], ["sleep", 500], ["wait", "go", 0]]])
        await it.until("run1", "running")
        it.world.rates.unanswered = ""

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_a_run_held_by_a_worker_with_other_code_goes_on_where_its_code_is() -> None:
    async def story(it: Story) -> None:
        it.variants = ("one", "two")
        first = await it.worker("one")
        await it.start(["seq", [["variant", "a"], ["sleep", 3000], ["step", "quick", "b", 0, 0]]])
        await it.wait(SECOND)
        first.kill()
        await it.worker("two")
        await it.wait(5 * SECOND)
        assert it.stands() == "held"
        await it.worker("one")

    verdict = told(story)

    assert verdict.ok, verdict.report()


def test_a_killed_worker_repeats_only_what_was_not_recorded() -> None:
    async def story(it: Story) -> None:
        first = await it.worker()
        await it.start(["seq", [["step", "work", "a", 0, 100], ["step", "work", "b", 0, 2000]]])
        await it.wait(SECOND)
        first.kill()
        await it.worker()
        await it.until("run1", "succeeded")
        assert [(e.label, e.number) for e in it.world.ledger.effects] == [("a", 1), ("b", 1), ("b", 2)]

    verdict = told(story)

    assert verdict.ok, verdict.report()
