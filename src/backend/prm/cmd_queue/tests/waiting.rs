//! Waiting for a command: by events or by looking, how often, and what ends it.

use super::*;

/// Who waits for a command sleeps where events come, and looks again and again where they do not.
#[test]
fn waiting_is_by_events_or_by_looking() {
    let (fake, queue) = queue(30 * SECOND);
    fake.hold(true);
    let slow_echo = |seed| {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| echo(&queue, Lane::Regular, 64, 64, seed));
            wait_for(|| fake.waiting() == [0]);
            if !queue.by_events.load(Ordering::Acquire) {
                let before = fake.n_pauses();
                wait_for(|| fake.n_pauses() > before);
            }
            std::thread::sleep(Duration::from_millis(20));
            fake.complete(0);
            queue.wake();
            waiting.join().unwrap().unwrap();
        });
    };
    slow_echo(0);
    queue.use_events(true);
    let pauses = fake.n_pauses();
    (1..10).for_each(slow_echo);
    assert_eq!(fake.n_pauses(), pauses, "looked where it should have slept");
    queue.use_events(false);
    slow_echo(10);
    assert!(fake.n_pauses() > pauses);
}

/// A completion event wakes whoever waits for a command, and whoever waits for a slot. It may come between a look and the
/// sleep after it, and is not lost then.
#[test]
fn an_event_wakes_all() {
    let (_, queue) = queue(SECOND);
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let guard = lock(&queue.completion);
        // Cannot wake before the sleep lets go of the lock.
        scope.spawn(|| queue.wake());
        let (_guard, slept) = queue.completed.wait_timeout(guard, long).unwrap();
        assert!(!slept.timed_out());
    });
    let asleep = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = lock(&queue.pool);
            asleep.store(true, Ordering::Release);
            queue.slot_freed.wait_timeout(guard, long).unwrap().1.timed_out()
        });
        wait_for(|| asleep.load(Ordering::Acquire));
        // The lock is free when it sleeps.
        drop(lock(&queue.pool));
        queue.wake();
        assert!(!waiting.join().unwrap());
    });
}

/// Pauses between two looks become longer, up to a bound; meanwhile the device's health is looked at ten times a second.
#[test]
fn looking_becomes_rarer_and_sees_to_the_health() {
    let (fake, queue) = queue(30 * SECOND);
    fake.hold(true);
    for _ in 0..3 {
        let (start, looks) = (Instant::now(), fake.n_health_looks());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| echo(&queue, Lane::Regular, 64, 64, 1));
            wait_for(|| fake.waiting() == [0]);
            wait_for(|| fake.n_health_looks() > looks);
            let pauses = fake.n_pauses();
            wait_for(|| fake.n_pauses() > pauses + 50);
            fake.complete(0);
            waiting.join().unwrap().unwrap();
        });
        let slices = start.elapsed().as_nanos() / HEALTH_SLICE.as_nanos();
        assert!((fake.n_health_looks() - looks) as u128 <= slices, "looked more often than {slices} times");
    }
    assert_eq!(fake.longest_pause(), POLL_SLICE);
}

/// Who finds no slot says how many the device has kept, and counts none that others are using.
#[test]
fn slots_in_use_are_not_stuck() {
    let (_, queue) = queue(Duration::from_millis(10));
    lock(&queue.pool).free = 0;
    let full = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err().to_string();
    assert!(full.contains("(0 of 31 are stuck in the device)"), "{full}");
    lock(&queue.pool).stuck = 1 << 31;
    let full = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err().to_string();
    assert!(full.contains("(0 of 31 are stuck in the device)"), "{full}");
}
