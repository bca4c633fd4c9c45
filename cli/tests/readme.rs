//! What README.md shows is what happens.
//!
//! `BLESS=1 cargo test -p mlx5-cli --test readme` writes the output and the quoted example anew.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced block after the comment `<!-- mark -->`, with its place in the text.
fn block<'t>(text: &'t str, mark: &str) -> (std::ops::Range<usize>, &'t str) {
    let start = text.find(&format!("<!-- {mark} -->\n```")).unwrap_or_else(|| panic!("README has no {mark}"));
    let fence = start + text[start..].find("```").expect("a fence");
    let start = fence + text[fence..].find('\n').expect("a line") + 1;
    let end = start + text[start..].find("```\n<!-- end -->").expect("an end");
    (start..end, &text[start..end])
}

/// Compares a block of README with what it should be, by `shape`; or writes it.
fn check(mark: &str, expected: &str, shape: fn(&str) -> String) {
    let readme = read("README.md");
    let (place, shown) = block(&readme, mark);
    if std::env::var_os("BLESS").is_some() {
        let mut blessed = readme.clone();
        blessed.replace_range(place, expected);
        fs::write(root().join("README.md"), blessed).expect("write README.md");
        return;
    }
    assert_eq!(shape(shown), shape(expected), "README.md, {mark}: BLESS=1 writes it anew");
}

/// The text with everything that may differ from run to run made equal: numbers, and the bars of histograms.
fn masked(text: &str) -> String {
    let mask = |line: &str| {
        let line = line.replace('#', "").replace('|', " | ");
        let words = line.split_whitespace();
        words
            .map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "N" } else { word })
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.lines().map(mask).collect::<Vec<_>>().join("\n")
}

/// What the second of the two commands prints, on sockets of this test's own.
fn two_hosts(readme: &str) -> String {
    let lines: Vec<_> = readme.lines().filter(|line| line.starts_with("mlx5 lat --op write")).collect();
    let [listens, connects] = lines[..] else { panic!("README has no two commands: {lines:?}") };
    let dir = std::env::temp_dir().join(format!("mlx5-readme-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("directory");
    let path = dir.display();
    let start = |line: &str, from: [&str; 2], to: [String; 2]| {
        let line = from.iter().zip(&to).fold(line.to_string(), |line, (from, to)| {
            assert!(line.contains(from), "README: no {from} in {line}");
            line.replace(from, to)
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
        command.args(line.split_whitespace().skip(1)).stdout(Stdio::piped());
        command.spawn().expect("mlx5 lat")
    };
    let wire = ["udp:127.0.0.1:4001/127.0.0.1:4002", "udp:127.0.0.1:4002/127.0.0.1:4001"];
    let ours = [format!("unix:{path}/a:{path}/b"), format!("unix:{path}/b:{path}/a")];
    let tcp = "127.0.0.1:18515";
    let mut server = start(listens, [wire[0], tcp], [ours[0].clone(), "127.0.0.1:0".into()]);
    let mut told = BufReader::new(server.stdout.take().expect("stdout"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    let at = line.trim().strip_prefix("listen  ").expect("where it listens").to_string();
    let client = start(connects, [wire[1], tcp], [ours[1].clone(), at]).wait_with_output().expect("client");
    told.read_to_string(&mut line).expect("UTF-8");
    assert!(server.wait().expect("server").success() && client.status.success(), "{line}{client:?}");
    let _ = fs::remove_dir_all(&dir);
    String::from_utf8(client.stdout).expect("UTF-8")
}

/// What mlx5 prints, and that it ends with `code`.
fn printed(args: &[&str], code: i32) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mlx5")).args(args).output().expect("mlx5");
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The section for who wants to understand a request. All of it is the same each time.
fn study(readme: &str) {
    let tour = printed(&["tour", "read"], 0);
    let step = tour.find("1. A writes").and_then(|start| Some(&tour[start..tour.find("\n2. ")?]));
    check("shown: tour read, step 1", step.expect("step 1"), str::to_owned);

    let start = readme.find("mlx5 diff 0000").expect("a diff");
    let line = readme[start..].split("```").next().expect("a line").replace('\\', " ");
    let [_, "diff", a, b] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("README: {line}") };
    check("shown: diff", &printed(&["diff", a, b], 1), str::to_owned);
    let digits: String =
        block(readme, "shown: tour read, step 1").1.chars().filter(|c| !c.is_whitespace()).collect();
    assert!(
        std::env::var_os("BLESS").is_some() || digits.contains(&a[..32]),
        "README: the diff is of another WQE"
    );

    let command = readme
        .split("`mlx5 encode rdma-read")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .expect("an encode");
    let args: Vec<_> = ["encode", "rdma-read"].into_iter().chain(command.split_whitespace()).collect();
    // A line of bytes is its offset, four words, and what they mean.
    let wqe: String = printed(&args, 0)
        .split("\ndoorbell record")
        .next()
        .expect("the WQE")
        .lines()
        .filter(|line| line.starts_with("  0x"))
        .flat_map(|line| line.split_whitespace().skip(1).take(4))
        .collect();
    assert_eq!(wqe, a, "README: encode gives another WQE than the diff has");
}

#[test]
fn readme_is_true() {
    // In one test: blessing rewrites one file.
    let readme = read("README.md");
    assert!(readme.contains(
        "```\ngit clone <this repository> && cd mlx5-direct\ncargo run --release -- pingpong\n```"
    ));
    let output = Command::new(env!("CARGO_BIN_EXE_mlx5")).arg("pingpong").output().expect("mlx5 pingpong");
    assert!(output.status.success(), "{output:?}");
    check("shown: pingpong", &String::from_utf8(output.stdout).expect("UTF-8"), masked);

    check("shown: two hosts", &two_hosts(&readme), masked);

    study(&readme);

    // From the first post to the sender's last word.
    let example = read("examples/write_and_send.rs");
    let start = example.find("    // At each end").expect("the start of what is quoted");
    let end = example.find("    model.assert_clean();").expect("its end");
    let quoted: Vec<_> =
        example[start..end].lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    check("quoted: examples/write_and_send.rs", &(quoted.join("\n") + "\n"), str::to_owned);
}

/// `cargo run` at the root starts `mlx5`: it is the only binary of the default members.
#[test]
fn cargo_run_starts_mlx5() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let defaults = list(&metadata["workspace_default_members"]);
    let packages = list(&metadata["packages"]);
    let targets =
        packages.iter().filter(|package| defaults.contains(&package["id"])).flat_map(|p| list(&p["targets"]));
    let bins: Vec<_> =
        targets.filter(|t| list(&t["kind"]).contains(&"bin".into())).map(|t| t["name"].clone()).collect();
    assert_eq!(bins, ["mlx5"]);
}

#[test]
fn what_readme_names_exists() {
    let readme = read("README.md");
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let first_cells = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let rooms = first_cells.flat_map(|cell| cell.split('`')).filter(|word| {
        word.starts_with("src/")
            || ["model", "cli", "hw-tests", "tests", "benches", "examples"].contains(word)
    });
    let named: Vec<_> = links.chain(rooms).collect();
    assert!(named.len() > 15, "{named:?}");
    for path in named {
        assert!(root().join(path).exists(), "README.md names {path}, which does not exist");
    }
}
