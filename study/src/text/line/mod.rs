//! Error lines of drivers, libraries and programs, a module for each family.
//!
//! A family finds the first message of its own in the text at hand, which may go on over the next lines; it never
//! reads bytes of dumps. Families that know exactly who printed a line come before those that know a status by its
//! name alone.

mod command;
mod completion;
mod cq_error;
mod devx;
mod dpdk;
mod event;
mod foreign;
mod health;
mod health_lines;
mod hws;
mod ib_cqe;
mod mlx5e;
mod mlx5e_queue;
mod module;
mod nccl;
mod openib;
mod pages;
mod perftest;
mod port;
mod prose;
mod rejected;
mod request;
mod timeout;
mod ucx;
mod ucx_request;
mod ucx_verbs;
mod ucx_wqe;
mod view;
mod wc;
mod wc_fields;

use super::{Found, Window};
use crate::record::Record;
use aho_corasick::AhoCorasick;
use std::sync::LazyLock;
use view::{Join, View};

/// A message that a family has found in a view.
#[derive(Debug)]
struct Hit {
    /// Where it begins and ends in the view's text.
    start: usize,
    end: usize,
    /// Its lines, by their places in the window.
    lines: Vec<usize>,
    record: Record,
}

/// Finds the first message of a family at or after a place in the view.
type Find = fn(&Window<'_>, &View, usize) -> Option<Hit>;

/// A family of messages.
struct Family {
    find: Find,
    /// One of these, in whatever case, is on the first line of every message.
    keywords: &'static [&'static str],
    /// Whether it knows messages by what they say, whoever printed them: others go first.
    is_generic: bool,
}

const fn exact(find: Find, keywords: &'static [&'static str]) -> Family {
    Family { find, keywords, is_generic: false }
}

const fn generic(find: Find, keywords: &'static [&'static str]) -> Family {
    Family { find, keywords, is_generic: true }
}

/// Every family, those first that go first.
const FAMILIES: &[Family] = &[
    exact(foreign::read, foreign::KEYWORDS),
    exact(ucx::read, ucx::KEYWORDS),
    exact(ucx_request::read, ucx_request::KEYWORDS),
    exact(ucx_verbs::read, ucx_verbs::KEYWORDS),
    exact(nccl::read, nccl::KEYWORDS),
    exact(perftest::read, perftest::KEYWORDS),
    exact(openib::read, openib::KEYWORDS),
    exact(dpdk::read, dpdk::KEYWORDS),
    exact(hws::read, hws::KEYWORDS),
    exact(timeout::read, timeout::KEYWORDS),
    exact(command::read, command::KEYWORDS),
    exact(devx::read, devx::KEYWORDS),
    exact(health::read, health::KEYWORDS),
    exact(health_lines::read, health_lines::KEYWORDS),
    exact(cq_error::read, cq_error::KEYWORDS),
    exact(ib_cqe::read, ib_cqe::KEYWORDS),
    exact(mlx5e::read, mlx5e::KEYWORDS),
    exact(mlx5e_queue::read, mlx5e_queue::KEYWORDS),
    exact(module::read, module::KEYWORDS),
    exact(pages::read, pages::KEYWORDS),
    exact(event::read, event::KEYWORDS),
    exact(port::read, port::KEYWORDS),
    exact(request::read, request::KEYWORDS),
    generic(prose::read, prose::KEYWORDS),
    generic(wc::read, wc::KEYWORDS),
];

/// One of these, in whatever case, is on the first line of every message.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.keywords.iter().copied())
}

/// Which family each keyword is of, and all keywords at once.
static MATCHER: LazyLock<(AhoCorasick, Vec<usize>)> = LazyLock::new(|| {
    let families = FAMILIES.iter().enumerate();
    let owners = families.flat_map(|(place, family)| family.keywords.iter().map(move |_| place)).collect();
    let built = AhoCorasick::builder().ascii_case_insensitive(true).build(keywords());
    match built {
        Ok(matcher) => (matcher, owners),
        Err(error) => unreachable!("keywords are few and constant: {error}"),
    }
});

/// The messages that begin on the window's first line.
pub fn read(window: &Window<'_>) -> Vec<Found> {
    let families = families_of(window.first());
    if families.iter().all(|is_called| !is_called) {
        return Vec::new();
    }
    let hits = all(window, &View::new(window, Join::Blank), families);
    let hits = if hits.is_empty() { all(window, &View::new(window, Join::Cut), families) } else { hits };
    hits.into_iter().map(|hit| found(window, hit)).collect()
}

/// Which families have a keyword on a line.
fn families_of(line: &str) -> [bool; FAMILIES.len()] {
    let (matcher, owners) = &*MATCHER;
    let mut called = [false; FAMILIES.len()];
    for found in matcher.find_overlapping_iter(line) {
        called[owners[found.pattern().as_usize()]] = true;
    }
    called
}

/// Every message that begins on a view's first line, one behind the other.
fn all(window: &Window<'_>, view: &View, mut called: [bool; FAMILIES.len()]) -> Vec<Hit> {
    let (mut hits, mut from) = (Vec::new(), 0);
    // A message that ends on a later line takes that whole, and what is stuck to its end.
    let mut bound = view.first_end();
    while from < bound && called.contains(&true) {
        let of = |is_generic: bool| {
            let families = FAMILIES
                .iter()
                .zip(&called)
                .filter(|(family, is_called)| **is_called && family.is_generic == is_generic);
            families
                .filter_map(|(family, _)| (family.find)(window, view, from))
                .filter(|hit| hit.start < bound)
                .min_by_key(|hit| hit.start)
        };
        let Some(hit) = of(false).or_else(|| of(true)) else { break };
        from = hit.end.max(from + 1);
        bound = bound.max(view.line_end(hit.end.saturating_sub(1)));
        while from < view.text.len() && !view.text.is_char_boundary(from) {
            from += 1;
        }
        called = families_of(view.text.get(from..bound).unwrap_or(""));
        hits.push(hit);
    }
    hits
}

/// A hit with its lines' numbers.
fn found(window: &Window<'_>, hit: Hit) -> Found {
    let number = |place: Option<&usize>| {
        place.and_then(|place| window.lines.get(*place)).map_or(0, |line| line.number)
    };
    let mut record = hit.record;
    record.lines = number(hit.lines.first())..=number(hit.lines.last());
    Found { record, taken: hit.lines }
}
