//! `--strict`: what the card does when a rule is broken. That the driver breaks one takes a mistake: see tests/mistakes.

use super::*;

#[test]
fn strict_is_taken_by_every_command_that_makes_a_card() {
    for how in ["report", "stop"] {
        let run = mlx5(&format!("lat --iters 50 --strict {how}"));
        assert!(run.code == Some(0) && run.stdout.ends_with("model: 0 violations\n"), "{run:?}");
        assert_eq!(mlx5(&format!("info --device model:ports=2 --strict {how}")).code, Some(0));
    }
}

#[test]
fn strict_is_refused_where_nothing_tells() {
    let refused = mlx5("pingpong --device verbs:mlx5_0 --strict stop");
    assert!(refused.code == Some(2) && refused.stderr.contains("--strict"), "{refused:?}");
    let twice = mlx5("pingpong --device model:strict=report --strict stop");
    assert!(twice.code == Some(2) && twice.stderr.contains("twice"), "{twice:?}");
    assert_eq!(mlx5("pingpong --strict perhaps").code, Some(2));
}
