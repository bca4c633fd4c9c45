//! The driver makes a mistake, one after the other: each is caught by its own rule of the model, and none by a crash
//! or a hang. Case H12. Needs the feature `seeded-mistakes`.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod data;
mod scene;

use mlx5_direct::mistake::{Mistake, make};
use mlx5_model::Rule;
use scene::Scene;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What else is broken by force: a rule that can then not be kept.
fn follows(mistake: Mistake) -> &'static [Rule] {
    match mistake {
        // The key's protection domain cannot go.
        Mistake::KeyLeaked => &[Rule::ObjectInUse],
        _ => &[],
    }
}

/// A mistake is made by the whole driver of this process, also where another test would make none.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the driver make a mistake in `act`, and checks what the model says. What the driver itself says is not asked.
fn caught(mistake: Mistake, scene: fn() -> Scene, act: fn(&mut Scene)) {
    let _alone = alone();
    let mut scene = scene();
    scene.card.assert_clean();
    let made = make(mistake);
    act(&mut scene);
    scene.settle();
    drop(made);
    let broken = scene.card.model().take_violations();
    let (own, other): (Vec<_>, Vec<_>) =
        broken.iter().partition(|broken| broken.rule.name() == mistake.caught_by());
    assert!(!own.is_empty(), "{mistake:?}: {} was not seen, but {other:?}", mistake.caught_by());
    for broken in other {
        assert!(follows(mistake).contains(&broken.rule), "{mistake:?}: {broken}");
    }
    let shown = own[0].to_string();
    assert!(shown.contains(own[0].rule.text()) && shown.contains(own[0].rule.source()), "{shown}");
}

/// Has the driver make a mistake that no device sees: `act` says whether the driver's user notices.
fn noticed(mistake: Mistake, scene: fn() -> Scene, act: fn(&mut Scene) -> bool) {
    assert_eq!(mistake.caught_by(), "");
    let _alone = alone();
    let mut scene = scene();
    let made = make(mistake);
    assert!(act(&mut scene), "{mistake:?} is not noticed");
    drop(made);
    scene.card.assert_clean();
}

/// A test for each mistake.
macro_rules! mistakes {
    ($( $name:ident $how:ident($scene:expr, $act:expr); )*) => {
        $( pastey::paste! {
            #[test]
            fn [<h12_sanitizer_seeded_bugs_ $name:snake>]() {
                $how(Mistake::$name, $scene, $act);
            }
        } )*
        const TESTED: &[Mistake] = &[$( Mistake::$name ),*];
    };
}

mistakes! {
    RecordMissing caught(Scene::ringing, data::write);
    RecordLate caught(Scene::ringing, data::write);
    RecordSwapped caught(Scene::ringing, data::write);
    RecordNotZeroed caught(Scene::new, data::start_again);
    DoorbellOfFirst caught(Scene::ringing, data::two_writes);
    DoorbellMissing caught(Scene::ringing, data::write_and_end);
    DoorbellTwice caught(Scene::ringing, data::write);
    DoorbellSwapped caught(Scene::ringing, data::write);
    DoorbellOf4Bytes caught(Scene::ringing, data::write);
    UarOfEvents caught(Scene::new, data::write_on_a_new_pair);
    BlueFlameOldBytes caught(Scene::new, data::write);
    BlueFlameCutShort caught(Scene::new, data::three_writes);
    IndexMasked caught(Scene::ringing, data::a_lap_of_writes);
    WqeOfAnotherQueue caught(Scene::ringing, data::write);
    DsInWqebbs caught(Scene::new, data::write);
    OpmodSet caught(Scene::new, data::write);
    FenceUnknown caught(Scene::new, data::write);
    ReservedBit caught(Scene::new, data::write);
    CreditsIgnored caught(Scene::ringing, data::more_than_a_ring);
    SlotReused caught(Scene::ringing, data::write);
    SendsEarly caught(Scene::new, data::nop_in_init);
    AtomicOf16 caught(Scene::new, data::fetch_add);
    ReadOfManyPieces caught(Scene::new, data::read_of_31_pieces);
    DatagramTooLong caught(Scene::new, data::datagram);
    AvShortForm caught(Scene::new, data::datagram_within_limits);
    UmrMaskUnknown caught(Scene::new, data::bind);
    UmrListOfOne caught(Scene::new, data::bind);
    ReceiveRecordAhead caught(Scene::new, data::receive);
    ReceiveReused caught(Scene::receiving, data::receive);
    ReceiveRecordMissing noticed(Scene::new, data::receive_does_not_come);
    ConsumerAhead caught(Scene::new, data::three_completions);
    ConsumerMasked caught(Scene::new, data::a_lap_of_completions);
    ConsumerSilent caught(Scene::new, data::a_lap_of_completions);
    LapForgotten caught(Scene::new, data::a_lap_of_completions);
    CqNotFilled caught(Scene::new, commands::create_cq);
    CqTooLarge caught(Scene::new, commands::create_cq);
    CqUarOfEvents caught(Scene::new, data::arm);
    ArmRecordMissing caught(Scene::new, data::arm);
    ArmCountedTwice caught(Scene::new, data::arm);
    ArmNotCounted noticed(Scene::new, data::second_event_does_not_come);
    EqNotFilled caught(Scene::new, commands::create_channel);
    EqIndexAhead caught(Scene::new, commands::until_it_is_seen);
    EqNeverTold caught(Scene::new, data::a_ring_of_events);
    EqVectorUnknown caught(Scene::new, commands::create_channel);
    TokenOfAnother caught(Scene::new, commands::create_cq);
    BlockNumberFromOne caught(Scene::new, commands::create_cq);
    NextPointerMissing caught(Scene::new, commands::create_large_cq);
    MailboxUnmapped caught(Scene::new, commands::create_cq);
    EntrySignature caught(Scene::signed, commands::create_cq);
    EntryType caught(Scene::new, commands::alloc_pd);
    EntryNotOwned caught(Scene::new, commands::alloc_pd);
    CommandRungTwice caught(Scene::new, commands::alloc_pd);
    InputCutShort caught(Scene::new, commands::create_cq);
    CommandReservedBit caught(Scene::new, commands::alloc_pd);
    EnableSkipped caught(Scene::closed, commands::open);
    PagesSkipped caught(Scene::closed, commands::open);
    PageTwice caught(Scene::closed, commands::open);
    PageUnaligned caught(Scene::closed, commands::open);
    PagesKept caught(Scene::new, commands::close);
    PasUnaligned caught(Scene::new, commands::create_cq);
    RecordUnaligned caught(Scene::new, commands::create_qp);
    KeyLongerThanList caught(Scene::new, commands::register);
    InitSkipped caught(Scene::new, commands::connect);
    OptParamUnknown caught(Scene::new, commands::connect);
    SourceAddressEmpty caught(Scene::new, data::write_on_a_new_pair);
    CqFirst caught(Scene::new, commands::end_pair);
    QpTwice caught(Scene::new, commands::end_pair);
    MemoryFirst caught(Scene::new, commands::register);
    KeyLeaked caught(Scene::new, commands::register_and_close);
    UarLeaked caught(Scene::new, commands::close);
}

#[test]
fn h12_sanitizer_seeded_bugs_none_without_a_mistake() {
    let _alone = alone();
    let acts: &[fn(&mut Scene)] = &[
        data::write,
        data::start_again,
        data::two_writes,
        data::three_writes,
        data::a_lap_of_writes,
        data::fetch_add,
        data::datagram_within_limits,
        data::bind,
        data::receive,
        data::three_completions,
        data::a_lap_of_completions,
        data::arm,
        data::nop_in_init,
        data::write_on_a_new_pair,
        data::write_and_end,
        commands::create_cq,
        commands::create_large_cq,
        commands::create_channel,
        commands::create_qp,
        commands::register,
        commands::end_pair,
        commands::close,
    ];
    for act in acts {
        let mut scene = Scene::new();
        act(&mut scene);
        scene.settle();
        scene.card.assert_clean();
    }
    assert!(!data::receive_does_not_come(&mut Scene::new()));
    assert!(!data::second_event_does_not_come(&mut Scene::new()));
}

#[test]
fn the_document_has_every_mistake() {
    let text = include_str!("../../docs/testing.md");
    for mistake in Mistake::ALL {
        let caught_by = match mistake.caught_by() {
            "" => "its own tests: what should come does not".into(),
            rule => format!("`{rule}`"),
        };
        let row = format!("| `{}` | {} | {caught_by} |", mistake.name(), mistake.text());
        assert!(text.lines().any(|line| line == row), "docs/testing.md lacks {row}");
    }
    let count = format!("{} mistakes", Mistake::ALL.len());
    assert!(text.contains(&count), "docs/testing.md does not say `{count}`");
}

#[test]
fn every_mistake_is_made_and_names_a_rule() {
    for mistake in Mistake::ALL {
        assert!(TESTED.contains(mistake), "{mistake:?} is not made by any test");
        let rule = mistake.caught_by();
        assert!(rule.is_empty() || Rule::ALL.iter().any(|known| known.name() == rule), "{mistake:?}: {rule}");
    }
}
