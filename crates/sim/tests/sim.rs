//! Facts about the virtual network.

use std::time::{Duration, Instant};

use sim::{Conditions, Loss, Sim, Step, WireStats};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Everything that can go wrong on a wire, often.
fn rough() -> Conditions {
    Conditions {
        delay: ms(20),
        jitter: ms(15),
        loss: Loss::Bursts { enter: 0.05, leave: 0.3, good: 0.01, bad: 0.8 },
        reorder: 0.1,
        duplicate: 0.1,
        ..Conditions::default()
    }
}

/// Sends a number each 20 ms up, and each that arrives down again; the log of all arrivals.
fn echo(base: Instant, seed: u64, conditions: Conditions, count: u64) -> String {
    let mut sim = Sim::new(base, seed);
    let (up, down) = (sim.add_wire(conditions), sim.add_wire(conditions));
    let mut next = 0;
    loop {
        let due = (next < count).then(|| base + ms(next * 20));
        match sim.step(due) {
            Step::Timeout => {
                sim.send(up, next);
                next += 1;
            }
            Step::Delivery(delivery) if delivery.wire == up => {
                sim.log("server", "received", format_args!("n={}", delivery.payload));
                sim.send(down, delivery.payload);
            }
            Step::Delivery(delivery) => sim.log("client", "received", format_args!("n={}", delivery.payload)),
            Step::Idle => return sim.events().to_string(),
        }
    }
}

#[test]
fn two_runs_with_one_seed_are_the_same_at_any_base() {
    let base = Instant::now();
    let first = echo(base, 1, rough(), 1000);
    assert_eq!(first, echo(base, 1, rough(), 1000));
    assert_eq!(first, echo(base + ms(12_345), 1, rough(), 1000));
    assert_ne!(first, echo(base, 2, rough(), 1000));
    assert!(first.lines().count() > 1000, "most of 2000 arrive");
}

#[test]
fn the_log_is_rendered_a_line_per_event() {
    let mut sim: Sim<()> = Sim::new(Instant::now(), 1);
    sim.log("client", "started", "");
    assert_eq!(sim.step(Some(sim.now() + Duration::from_micros(1_020_003))), Step::Timeout);
    sim.log("edge", "claimed", format_args!("session={}", 7));
    assert_eq!(sim.events().to_string(), "     0.000000 client started\n     1.020003 edge claimed session=7\n");
    assert_eq!(sim.events().first("edge", "claimed"), Some(Duration::from_micros(1_020_003)));
    assert_eq!(sim.events().entries().len(), 2);
}

#[test]
fn jitter_alone_keeps_the_order() {
    let mut sim = Sim::new(Instant::now(), 3);
    let wire = sim.add_wire(Conditions { delay: ms(5), jitter: ms(50), ..Conditions::default() });
    for n in 0..500 {
        sim.send(wire, n);
    }
    let arrived: Vec<_> = std::iter::from_fn(|| match sim.step(None) {
        Step::Delivery(delivery) => Some(delivery.payload),
        _ => None,
    })
    .collect();
    assert_eq!(arrived, (0..500).collect::<Vec<_>>());
    assert!(sim.elapsed() <= ms(55));
}

#[test]
fn a_reordered_payload_is_passed_by_those_behind_it() {
    let base = Instant::now();
    let mut sim = Sim::new(base, 3);
    let wire = sim.add_wire(Conditions { reorder: 0.2, ..Conditions::default() });
    let (mut sent, mut arrived) = (0_u64, Vec::new());
    loop {
        match sim.step((sent < 200).then(|| base + ms(sent * 20))) {
            Step::Timeout => {
                sim.send(wire, sent);
                sent += 1;
            }
            Step::Delivery(delivery) => arrived.push(delivery.payload),
            Step::Idle => break,
        }
    }
    let passed = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let reordered = sim.stats(wire).reordered;
    assert!((20..=60).contains(&reordered), "{reordered} of 200 at 0.2");
    assert!(passed > 0);
    arrived.sort_unstable();
    assert_eq!(arrived, (0..200).collect::<Vec<_>>());
}

#[test]
fn bursts_lose_in_runs() {
    let lost_runs = |loss| {
        let mut sim = Sim::new(Instant::now(), 4);
        let wire = sim.add_wire(Conditions { loss, ..Conditions::default() });
        (0..20_000).for_each(|n| sim.send(wire, n));
        let (mut expected, mut runs) = (0, 0);
        while let Step::Delivery(delivery) = sim.step(None) {
            runs += u64::from(delivery.payload != expected);
            expected = delivery.payload + 1;
        }
        (sim.stats(wire).lost, runs)
    };
    // Both lose a tenth; bursts of 5 on average do it in far fewer runs.
    let (uniform, uniform_runs) = lost_runs(Loss::Uniform(0.1));
    let (bursts, burst_runs) = lost_runs(Loss::Bursts { enter: 0.022, leave: 0.2, good: 0.0, bad: 1.0 });
    assert!((1800..=2200).contains(&uniform), "{uniform}");
    assert!((1600..=2400).contains(&bursts), "{bursts}");
    assert!(burst_runs * 3 < uniform_runs, "{burst_runs} runs against {uniform_runs}");
}

#[test]
fn what_a_wire_did_is_counted() {
    let mut sim = Sim::new(Instant::now(), 5);
    let wire = sim.add_wire(Conditions { duplicate: 1.0, ..Conditions::default() });
    (0..10).for_each(|n| sim.send(wire, n));
    sim.set_conditions(wire, Conditions { loss: Loss::Uniform(1.0), ..Conditions::default() });
    (0..5).for_each(|n| sim.send(wire, n));
    let arrived = std::iter::from_fn(|| match sim.step(None) {
        Step::Delivery(delivery) => Some(delivery.sent),
        _ => None,
    });
    assert_eq!(arrived.collect::<Vec<_>>(), (0..10).flat_map(|n| [n, n]).collect::<Vec<_>>());
    assert_eq!(sim.stats(wire), WireStats { sent: 15, lost: 5, reordered: 0, duplicated: 10 });
}

#[test]
fn traffic_on_one_wire_changes_nothing_on_another() {
    let fates = |other: u64| {
        let mut sim = Sim::new(Instant::now(), 6);
        let (wire, busy) = (sim.add_wire(rough()), sim.add_wire(rough()));
        for n in 0..200 {
            (0..other).for_each(|_| sim.send(busy, u64::MAX));
            sim.send(wire, n);
        }
        let mut fates = Vec::new();
        while let Step::Delivery(delivery) = sim.step(None) {
            if delivery.wire == wire {
                fates.push((sim.elapsed(), delivery.payload));
            }
        }
        fates.sort_unstable();
        fates
    };
    assert_eq!(fates(0), fates(3));
}

#[test]
fn a_delivery_comes_before_a_timeout_of_the_same_instant_and_the_clock_never_goes_back() {
    let base = Instant::now();
    let mut sim = Sim::new(base, 7);
    let wire = sim.add_wire(Conditions { delay: ms(10), ..Conditions::default() });
    sim.send(wire, ());
    assert_eq!(sim.next_delivery(), Some(base + ms(10)));
    assert!(matches!(sim.step(Some(base + ms(10))), Step::Delivery(_)));
    assert_eq!(sim.step(Some(base)), Step::Timeout);
    assert_eq!(sim.now(), base + ms(10));
    assert_eq!(sim.step(None), Step::Idle);
}
