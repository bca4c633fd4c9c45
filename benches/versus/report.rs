//! What was measured, as Markdown and as JSON.

use crate::measure::{Outcome, Took};
use serde_json::{Value, json};
use std::fmt::Write;

pub fn head(group: &str) -> String {
    format!(
        "\n**{group}**\n\n\
         | operation | who | ns | isolated ns | instr | sfence | lfence | locks | ours is faster by (p10–p90) | target |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    )
}

/// What is aimed at with a contender, and whether it is reached.
fn verdicts(outcome: &Outcome, took: &Took) -> Vec<(String, bool)> {
    let targets = outcome.targets;
    let mut all = vec![];
    if took.who == "ours" {
        if let Some(ns) = targets.ns {
            all.push((format!("≤ {ns} ns"), took.ns <= ns));
        }
        if let (Some(most), Some(count)) = (targets.instructions, took.count) {
            let instructions = f64::from(count.instructions) / f64::from(outcome.n);
            all.push((format!("≤ {most} instr"), instructions <= most));
        }
    } else if let Some(ratio) = match took.who {
        who if who.ends_with("no locks") => targets.ratio,
        who if who.starts_with("UCX") => targets.ucx_ratio,
        _ => None,
    } {
        all.push((format!("≥ {ratio} ×"), took.ratio[0] >= ratio));
    }
    all
}

fn verdict(outcome: &Outcome, took: &Took) -> String {
    let words = |(target, met)| format!("{target}: {}", if met { "met" } else { "**not met**" });
    verdicts(outcome, took).into_iter().map(words).collect::<Vec<_>>().join(", ")
}

/// How many targets are met.
pub fn summary(outcomes: &[Outcome]) -> String {
    let verdicts = outcomes.iter().flat_map(|o| o.contenders.iter().flat_map(|took| verdicts(o, took)));
    let (mut n_met, mut n) = (0, 0);
    for (_, met) in verdicts {
        (n_met, n) = (n_met + u32::from(met), n + 1);
    }
    format!("\n{n_met} of {n} targets met in this run.")
}

pub fn rows(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (i, took) in outcome.contenders.iter().enumerate() {
        let name = if i == 0 { outcome.name } else { "" };
        let per = |value: u32| {
            let value = f64::from(value) / f64::from(outcome.n);
            if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.1}") }
        };
        let counts = took.count.map_or("| – | – | – | –".into(), |c| {
            format!(
                "| {} | {} | {} | {}",
                per(c.instructions),
                per(c.sfences),
                per(c.load_fences),
                per(c.locks)
            )
        });
        let [middle, low, high] = took.ratio;
        let ratio = if i == 0 { String::new() } else { format!("{middle:.2} ({low:.2}–{high:.2})") };
        writeln!(
            text,
            "| {name} | {} | {:.1} | {} {counts} | {ratio} | {} |",
            took.who,
            took.ns,
            took.isolated_ns.map_or("–".into(), |ns| format!("{ns:.1}")),
            verdict(outcome, took)
        )
        .expect("a string");
    }
    text
}

pub fn json(outcomes: &[Outcome]) -> String {
    let all: Vec<Value> = outcomes
        .iter()
        .map(|outcome| {
            let contenders: Vec<Value> = outcome
                .contenders
                .iter()
                .map(|took| {
                    let count = took.count.map(|c| {
                        json!({
                            "instructions": c.instructions, "sfences": c.sfences, "load_fences": c.load_fences,
                            "locks": c.locks,
                        })
                    });
                    json!({
                        "who": took.who, "ns": took.ns, "isolated_ns": took.isolated_ns, "of_one_call": count,
                        "times_ours": took.ratio[0], "times_ours_p10": took.ratio[1], "times_ours_p90": took.ratio[2],
                    })
                })
                .collect();
            let targets = json!({
                "ns": outcome.targets.ns, "instructions": outcome.targets.instructions, "ratio": outcome.targets.ratio, "ucx_ratio": outcome.targets.ucx_ratio,
            });
            json!({
                "group": outcome.group, "operation": outcome.name, "requests_of_one_call": outcome.n,
                "targets": targets, "contenders": contenders,
            })
        })
        .collect();
    serde_json::to_string_pretty(&all).expect("plain values") + "\n"
}

pub fn notes() -> &'static str {
    "
instr, fences, locks: single-stepped, exact, from the first instruction of the calling function to its return,
building the request included.
ns: median of rounds in which all take turns; isolated: one call between two serialized clock readings. Neighbours on
a shared machine move the ns by tens of per cent: compare ratios of one run, and gate on instructions and fences.
libmlx5 is the installed one, unmodified, on a pretend kernel device. Its requests are prepared once and only patched,
ours are built anew each time. UCX (1.13, rc_mlx5, without flow control) runs on the same device. All have rings, records and registers in ordinary memory, in pages of their own.
The floor does less: no credits, ledger, limits or wrap, constants for arguments; its poll neither checks whose
completion it is nor retires anything.
demoted: the lines of the CQEs are moved out of the near caches (CLDEMOTE), as after a device has written them.

What this does not show: write-combining memory and PCIe. Here a BlueFlame costs a cache hit; on a card back-to-back
single posts are bounded by the flush of each line to the bus, for everyone, while isolated posts and batches should
hold their ratios. Of a one-way latency of 800 to 1000 ns the processor time saved is 4 to 5 per cent."
}
