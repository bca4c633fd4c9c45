//! `mlx5 encode`: the bytes of a work request.

use crate::failure::Failure;
use clap::Args;
use mlx5_study::{encode::Encoded, encode::encode as encoded, record::Structure, structure};
use serde_json::{Map, Value, json};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead, BufReader, Write},
};

/// Shown below the options.
const EXAMPLES: &str = "\
OPERATION is send, send-imm, send-inval, rdma-write, rdma-write-imm, rdma-read, atomic-cs, atomic-fa, local-inv, nop, lso, or recv for a
receive request.

  mlx5 encode rdma-write --qpn 0x111 --wqe-index 5 --remote-addr 0x7f0000001000 --rkey 0x1234 \\
      --sge 0x7f0012340000:4096:0xc0de00 --signaled
  mlx5 encode send --transport ud --qpn 0x113 --ud remote_qpn=0x42,qkey=0x11111111,dlid=7,sl=0 --inline hello
  mlx5 encode recv --qpn 0x111 --stride 64 --sge 0x7f0012340000:4096:0xc0de00

With --json each line of FILE is a request: {\"id\": 1, \"kind\": \"send\", \"transport\": \"RC\", \"qpn\": \"0x111\", \"wqe_index\": 5,
\"ring_wqebbs\": 256, \"opcode\": \"RDMA_WRITE\", \"signaled\": true, \"remote_addr\": \"0x7f0000001000\", \"rkey\": \"0x1234\",
\"sges\": [{\"addr\": \"0x7f0012340000\", \"length\": 4096, \"lkey\": \"0xc0de00\"}]}. Numbers are integers or texts; `inline` is hex.";

/// Arguments of `encode`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Encode {
    /// What is asked; with --json the file with requests, `-` or nothing for standard input
    #[arg(value_name = "OPERATION|FILE", required_unless_present = "json")]
    what: Option<OsString>,
    /// Read JSON, a request a line, and print JSON
    #[arg(long)]
    json: bool,
    /// How the queue pair talks: rc, uc, ud, xrc, raw_packet
    #[arg(long, default_value = "rc")]
    transport: String,
    /// Number of the queue pair
    #[arg(long, default_value = "0x111", value_name = "N")]
    qpn: String,
    /// Counter of the WQE's first WQEBB; of a receive request, of the WQE
    #[arg(long, default_value = "0", value_name = "N")]
    wqe_index: String,
    /// WQEBBs of the ring
    #[arg(long, default_value = "256", value_name = "N")]
    ring_wqebbs: String,
    /// Bytes of a receive WQE
    #[arg(long, default_value = "64", value_name = "BYTES")]
    stride: String,
    /// Makes a completion
    #[arg(long)]
    signaled: bool,
    /// Waits for earlier READs and atomics
    #[arg(long)]
    fence: bool,
    /// The receiver's completion is a solicited event
    #[arg(long)]
    solicited: bool,
    /// Address at the peer
    #[arg(long, value_name = "N")]
    remote_addr: Option<String>,
    /// Key of the peer's memory
    #[arg(long, value_name = "N")]
    rkey: Option<String>,
    /// Immediate data, in host order
    #[arg(long, value_name = "N")]
    imm: Option<String>,
    /// Key that is invalidated
    #[arg(long, value_name = "N")]
    invalidate_rkey: Option<String>,
    /// What compare-and-swap compares with
    #[arg(long, value_name = "N")]
    compare: Option<String>,
    /// What compare-and-swap puts there
    #[arg(long, value_name = "N")]
    swap: Option<String>,
    /// What fetch-and-add adds
    #[arg(long, value_name = "N")]
    add: Option<String>,
    /// A piece of memory; again for more
    #[arg(long, value_name = "ADDR:LEN:LKEY")]
    sge: Vec<String>,
    /// Data in the WQE: hexadecimal after 0x, the contents of a file, or text as it is
    #[arg(long, value_name = "0xHEX|@FILE|TEXT", conflicts_with = "sge")]
    inline: Option<String>,
    /// Where a datagram goes: remote_qpn, qkey, dlid, sl, src_path_bits, static_rate; with a GRH dgid, sgid_index, hop_limit,
    /// traffic_class, flow_label; on RoCE dmac and udp_sport
    #[arg(long, value_name = "NAME=VALUE,…")]
    ud: Option<String>,
    /// The peer's shared receive queue, of XRC
    #[arg(long, value_name = "N")]
    remote_srqn: Option<String>,
    /// Head of a raw packet, which the WQE carries: hexadecimal
    #[arg(long, value_name = "HEX")]
    header: Option<String>,
    /// Payload bytes of the segments of a large send
    #[arg(long, value_name = "BYTES")]
    mss: Option<String>,
    /// The device computes a raw packet's checksums
    #[arg(long)]
    checksums: bool,
}

/// Runs `encode`.
pub(crate) fn encode(args: &Encode, out: &mut impl Write) -> Result<(), Failure> {
    if args.json {
        return lines(args.what.as_ref(), out);
    }
    let request = request(args)?;
    let encoded = encoded(&request).map_err(|refusal| {
        let name = refusal.field.replace('_', "-").replace("sges", "sge");
        Failure::Usage(format!("--{name} {}", refusal.why))
    })?;
    annotated(&encoded, out)
}

/// Requests as lines of JSON.
fn lines(file: Option<&OsString>, out: &mut impl Write) -> Result<(), Failure> {
    let input: Box<dyn BufRead> = match file {
        Some(name) if name != "-" => {
            let open =
                File::open(name).map_err(|e| Failure::Run(format!("cannot read {}: {e}", name.display())))?;
            Box::new(BufReader::new(open))
        }
        _ => Box::new(BufReader::new(io::stdin())),
    };
    let mut n_refused = 0u64;
    for (n, line) in input.split(b'\n').enumerate() {
        let line = line.map_err(|e| Failure::Run(format!("cannot read line {}: {e}", n + 1)))?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let parsed = serde_json::from_str::<Value>(&line);
        let id = parsed.as_ref().ok().and_then(|request| request.get("id")).cloned();
        let result = match &parsed {
            Ok(request) => encoded(request).map_err(|refusal| refusal.to_string()),
            Err(error) => Err(format!("is no JSON: {error}")),
        };
        match result {
            Ok(encoded) => writeln!(out, "{}", encoded.json(id.as_ref()))?,
            Err(why) => {
                n_refused += 1;
                let id = id.map_or_else(String::new, |id| format!(" (id {id})"));
                // Nobody to tell if standard error is closed.
                let _ = writeln!(io::stderr(), "line {}{id}: {why}", n + 1);
            }
        }
    }
    match n_refused {
        0 => Ok(()),
        _ => Err(Failure::Told(1)),
    }
}

/// The request that the flags say, as JSON.
fn request(args: &Encode) -> Result<Value, Failure> {
    let what = args.what.as_ref().map(|what| what.to_string_lossy().replace('-', "_").to_uppercase());
    let what = what.unwrap_or_default();
    let is_recv = what == "RECV";
    let mut map = Map::new();
    map.insert("kind".into(), json!(if is_recv { "recv" } else { "send" }));
    for (name, value) in [
        ("transport", &args.transport),
        ("qpn", &args.qpn),
        (if is_recv { "index" } else { "wqe_index" }, &args.wqe_index),
        ("ring_wqebbs", &args.ring_wqebbs),
        ("stride", &args.stride),
        ("opcode", &what),
    ] {
        map.insert(name.into(), json!(value));
    }
    for (name, value) in [
        ("remote_addr", &args.remote_addr),
        ("rkey", &args.rkey),
        ("imm", &args.imm),
        ("invalidate_rkey", &args.invalidate_rkey),
        ("compare", &args.compare),
        ("swap", &args.swap),
        ("add", &args.add),
        ("remote_srqn", &args.remote_srqn),
        ("header", &args.header),
        ("mss", &args.mss),
    ] {
        if let Some(value) = value {
            map.insert(name.into(), json!(value));
        }
    }
    for (name, flag) in [
        ("signaled", args.signaled),
        ("fence", args.fence),
        ("solicited", args.solicited),
        ("checksums", args.checksums),
    ] {
        map.insert(name.into(), json!(flag));
    }
    match &args.inline {
        Some(data) => map.insert("inline".into(), json!(data_of(data)?)),
        None => map.insert("sges".into(), args.sge.iter().map(|sge| piece(sge)).collect::<Result<_, _>>()?),
    };
    if let Some(ud) = &args.ud {
        map.insert("ud".into(), datagram(ud)?);
    }
    Ok(Value::Object(map))
}

fn piece(text: &str) -> Result<Value, Failure> {
    match text.split(':').collect::<Vec<_>>()[..] {
        [addr, len, lkey] => Ok(json!({ "addr": addr, "length": len, "lkey": lkey })),
        _ => Err(Failure::Usage(format!("--sge {text}: three numbers are wanted, ADDR:LEN:LKEY"))),
    }
}

/// Inline data in hexadecimal.
fn data_of(text: &str) -> Result<String, Failure> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(digits) = text.strip_prefix("0x") {
        return Ok(digits.to_owned());
    }
    match text.strip_prefix('@') {
        Some(file) => {
            let bytes = std::fs::read(file).map_err(|e| Failure::Run(format!("cannot read {file}: {e}")))?;
            Ok(hex(&bytes))
        }
        None => Ok(hex(text.as_bytes())),
    }
}

/// Parts of an address: those of a GRH in an object of their own.
fn datagram(text: &str) -> Result<Value, Failure> {
    let (mut ud, mut grh) = (Map::new(), Map::new());
    for part in text.split(',') {
        let wrong = || Failure::Usage(format!("--ud {part}: NAME=VALUE is wanted"));
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let is_grh = ["dgid", "sgid_index", "hop_limit", "traffic_class", "flow_label"].contains(&name);
        let map = if is_grh { &mut grh } else { &mut ud };
        map.insert(name.into(), json!(value));
    }
    if !grh.is_empty() {
        ud.insert("grh".into(), Value::Object(grh));
    }
    Ok(Value::Object(ud))
}

/// The request for people: each segment's bytes, and its fields beside them.
fn annotated(encoded: &Encoded, out: &mut impl Write) -> Result<(), Failure> {
    let (says, structures) = match encoded.transport {
        Some(transport) => {
            let wqe = structure::wqe(encoded.wqe(), Some(transport));
            wqe.map(|wqe| (wqe.says, wqe.structures)).unwrap_or_default()
        }
        None => {
            let receive = structure::receive(encoded.wqe(), structure::ReceiveHead::None);
            receive.map(|receive| (receive.says, receive.structures)).unwrap_or_default()
        }
    };
    writeln!(out, "{says}\n")?;
    let wqe = encoded.wqe();
    for (i, structure) in structures.iter().enumerate() {
        let next = structures.get(i + 1).map_or(wqe.len(), |next| next.offset_bytes);
        segment(structure, &wqe[structure.offset_bytes..next], out)?;
    }
    for note in &encoded.notes {
        writeln!(out, "note: {note}")?;
    }
    let drafted = &encoded.drafted;
    match encoded.transport {
        Some(_) => {
            writeln!(out, "{} segments (ds), {} WQEBBs of 64 bytes", wqe.len() / 16, drafted.n_wqebbs)?
        }
        None => writeln!(out, "{} bytes of a stride of {}", wqe.len(), drafted.wqe.len())?,
    }
    writeln!(
        out,
        "doorbell record: {}  ({})",
        words(&drafted.record),
        match encoded.transport {
            Some(_) => "send word, at +4: the counter of the next WQEBB",
            None => "receive word, at +0: the count of WQEs posted",
        }
    )?;
    match drafted.register.len() {
        0 => writeln!(out, "register: none: receive queues have no doorbell")?,
        8 => {
            writeln!(out, "register: {}  (doorbell: the first 8 bytes of the WQE)", words(&drafted.register))?
        }
        n => {
            writeln!(out, "register: {n} bytes by BlueFlame, the WQE in whole WQEBBs:")?;
            for (i, line) in drafted.register.chunks(16).enumerate() {
                writeln!(out, "  0x{:02x}  {}", i * 16, words(line))?;
            }
        }
    }
    Ok(())
}

/// One segment: its bytes on the left, its fields on the right.
fn segment(structure: &Structure, bytes: &[u8], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "{}", structure.title)?;
    let rows: Vec<String> = bytes.chunks(16).map(words).collect();
    let explained = structure.desc.explain(&structure.bytes).to_string();
    let fields: Vec<&str> = explained.lines().collect();
    for i in 0..rows.len().max(fields.len()) {
        let at =
            rows.get(i).map_or_else(String::new, |_| format!("0x{:02x}", structure.offset_bytes + i * 16));
        let row = rows.get(i).map_or("", String::as_str);
        let field = fields.get(i).map_or("", |field| field.trim());
        writeln!(out, "{}", format!("  {at:<5} {row:<35}  {field}").trim_end())?;
    }
    Ok(())
}

/// Bytes in groups of four.
fn words(bytes: &[u8]) -> String {
    let word = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ")
}
