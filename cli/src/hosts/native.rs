//! Our own exchange: lines of JSON over TCP.
//!
//! Each end says what it was asked to run, and both compare. Then, for each size: addresses of queue pairs and
//! memory; `ready`, when receives are posted; the run; `done` with the result; `checked`. At any time `failed` says
//! why an end gives up. The end that asks speaks first, the other one answers.

use super::{
    Local, Outcome, TwoHosts,
    half::{Half, Role},
    tcp::Tcp,
};
use crate::{endpoint::Endpoint, failure::Failure, plan::Plan, request::Far};
use mlx5_direct::{QpAddress, mlx5::ids::Rkey, queue::Remote};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Version of the exchange. Ends of different versions do not talk.
const VERSION: u32 = 2;

/// What a line says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    /// What the end was asked to run.
    Hello(Hello),
    /// Where it can be reached.
    End(End),
    /// The peer may start.
    Ready,
    /// The asking end has its result.
    Done(Value),
    /// What arrived is right.
    Checked,
    /// An end gives up.
    Failed(String),
}

/// What both ends have to agree on. Values are as on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    version: u32,
    command: String,
    transport: String,
    op: String,
    size: Vec<u32>,
    iters: Vec<u64>,
    batch: u32,
    depth: u32,
    qps: u32,
    seed: u64,
}

impl Hello {
    fn new(command: &str, plans: &[Plan]) -> Self {
        let first = plans.first();
        let number = |of: fn(&Plan) -> u32| first.map_or(0, of);
        Self {
            version: VERSION,
            command: command.into(),
            transport: first.map_or_else(String::new, |plan| plan.transport.name().into()),
            op: first.map_or_else(String::new, |plan| plan.op.name().into()),
            size: plans.iter().map(|plan| plan.size).collect(),
            iters: plans.iter().map(|plan| plan.iters).collect(),
            batch: number(|plan| plan.batch),
            depth: number(|plan| plan.depth),
            qps: number(|plan| plan.qps),
            seed: first.map_or(0, |plan| plan.seed),
        }
    }

    /// Names the first thing that the peer was asked to do otherwise.
    fn compare(&self, peer: &Self) -> Result<(), Failure> {
        if self.version != peer.version {
            return Err(Failure::Run(format!(
                "this mlx5 speaks version {} of the exchange, the peer version {}; use the same mlx5 on both hosts",
                self.version, peer.version
            )));
        }
        let pairs = |of: fn(&Self) -> Value| (of(self), of(peer));
        let settings = [
            ("the command", pairs(|hello| hello.command.clone().into())),
            ("--transport", pairs(|hello| hello.transport.clone().into())),
            ("--op", pairs(|hello| hello.op.clone().into())),
            ("--size", pairs(|hello| hello.size.clone().into())),
            ("--iters", pairs(|hello| hello.iters.clone().into())),
            ("--batch", pairs(|hello| hello.batch.into())),
            ("--depth", pairs(|hello| hello.depth.into())),
            ("--qps", pairs(|hello| hello.qps.into())),
            ("--seed", pairs(|hello| hello.seed.into())),
        ];
        match settings.into_iter().find(|(_, (own, theirs))| own != theirs) {
            None => Ok(()),
            Some((name, (own, theirs))) => Err(Failure::Usage(format!(
                "{name} is {own} here and {theirs} at the peer; give both ends the same"
            ))),
        }
    }
}

/// An end's queue pairs and memory.
#[derive(Debug, Serialize, Deserialize)]
struct End {
    /// [`QpAddress`] of each queue pair, as text.
    qps: Vec<String>,
    addr: u64,
    rkey: u32,
}

/// Messages to the peer and from it.
struct Talk<'t> {
    tcp: &'t mut Tcp,
    role: Role,
    timeout: Duration,
}

impl Talk<'_> {
    fn say(&mut self, message: &Message) -> Result<(), Failure> {
        let mut line = serde_json::to_string(message)
            .map_err(|error| Failure::Run(format!("a message to the peer cannot be written: {error}")))?;
        line.push('\n');
        self.tcp.send(line.as_bytes(), self.timeout)
    }

    fn hear(&mut self, what: &str) -> Result<Message, Failure> {
        let line = self.tcp.line(what, self.timeout)?;
        understand(&line)
    }

    /// Says `message` and hears the peer's, in this order or, at the end that answers, in the other.
    fn trade(&mut self, message: &Message, what: &str) -> Result<Message, Failure> {
        match self.role {
            Role::Asks => {
                self.say(message)?;
                self.hear(what)
            }
            Role::Answers => {
                let theirs = self.hear(what)?;
                self.say(message)?;
                Ok(theirs)
            }
        }
    }
}

fn understand(line: &str) -> Result<Message, Failure> {
    match serde_json::from_str(line) {
        Ok(Message::Failed(why)) => Err(Failure::Run(format!("the peer gave up: {why}"))),
        Ok(message) => Ok(message),
        Err(_) => Err(Failure::Run(format!(
            "the peer said `{}`, which is not of this exchange; is it mlx5 with the same --exchange?",
            line.chars().take(80).collect::<String>()
        ))),
    }
}

fn unexpected(message: &Message, wanted: &str) -> Failure {
    Failure::Run(format!("the peer said {message:?} where `{wanted}` was expected; is it the same mlx5?"))
}

/// Runs all plans with the peer at the other end of `tcp`, and hands each result to `tell`.
pub(crate) fn run<R: TwoHosts>(
    command: &str,
    plans: &[Plan],
    local: &Local<'_>,
    tcp: &mut Tcp,
    mut tell: impl FnMut(Outcome<R>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let result = hello(command, plans, local, tcp)
        .and_then(|()| plans.iter().try_for_each(|plan| tell(one(plan, local, tcp)?)));
    let Err(failure) = result else { return Ok(()) };
    // What the peer said last is the better reason, if it gave up first.
    let peer_gave_up = match tcp.try_line() {
        Ok(Some(line)) => understand(&line).err(),
        _ => None,
    };
    if let (Some(why), Failure::Run(_)) = (peer_gave_up, &failure) {
        return Err(why);
    }
    if let Some(why) = failure.message() {
        let mut talk = Talk { tcp, role: local.role, timeout: local.timeout };
        // The peer may be gone; this end's reason is told in any case.
        let _ = talk.say(&Message::Failed(why));
        talk.tcp.wait_closed(Duration::from_millis(200));
    }
    Err(failure)
}

fn hello(command: &str, plans: &[Plan], local: &Local<'_>, tcp: &mut Tcp) -> Result<(), Failure> {
    let mut talk = Talk { tcp, role: local.role, timeout: local.timeout };
    let own = Hello::new(command, plans);
    match talk.trade(&Message::Hello(own.clone()), "greeting")? {
        Message::Hello(theirs) => own.compare(&theirs),
        other => Err(unexpected(&other, "hello")),
    }
}

/// Runs one plan.
fn one<R: TwoHosts>(plan: &Plan, local: &Local<'_>, tcp: &mut Tcp) -> Result<Outcome<R>, Failure> {
    let mut end = Endpoint::new(local.role.name(), local.ctx, plan, R::MEASURE)?;
    let own = end.addresses(&local.how)?;
    let base = end.far().base();
    let message = Message::End(End {
        qps: own.iter().map(ToString::to_string).collect(),
        addr: base.addr,
        rkey: base.rkey.get(),
    });
    let mut talk = Talk { tcp, role: local.role, timeout: plan.patience() };
    let theirs = match talk.trade(&message, "address")? {
        Message::End(theirs) => theirs,
        other => return Err(unexpected(&other, "end")),
    };
    let peers: Vec<QpAddress> = theirs.qps.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    if peers.len() != own.len() {
        return Err(Failure::Run(format!(
            "the peer has {} queue pairs, and {} are needed",
            peers.len(),
            own.len()
        )));
    }
    let peers: Vec<_> =
        peers.into_iter().map(|peer| QpAddress { mac: local.peer_mac.unwrap_or(peer.mac), ..peer }).collect();
    end.connect(&peers, &local.how)?;
    let far = Far::new(Remote { addr: theirs.addr, rkey: Rkey::new(theirs.rkey) }, end.places);
    let mut half = Half::new(end, far, local.role, tcp);
    let inline = R::prepare(&mut half)?;
    let mut talk = Talk { tcp: half.tcp, role: local.role, timeout: plan.patience() };
    match talk.trade(&Message::Ready, "`ready`")? {
        Message::Ready => {}
        other => return Err(unexpected(&other, "ready")),
    }
    let row = match local.role {
        Role::Asks => {
            let (row, latencies) = R::ask(&mut half, &inline)?;
            let told = serde_json::to_value(row)
                .map_err(|error| Failure::Run(format!("the result cannot be written: {error}")))?;
            let mut talk = Talk { tcp: half.tcp, role: local.role, timeout: plan.patience() };
            talk.say(&Message::Done(told))?;
            match talk.hear("check of what arrived")? {
                Message::Checked => (row, latencies),
                other => return Err(unexpected(&other, "checked")),
            }
        }
        Role::Answers => {
            let line = R::answer(&mut half)?;
            let row = match understand(&line)? {
                Message::Done(row) => serde_json::from_value(row).map_err(|error| {
                    Failure::Run(format!("the peer's result is none of {}: {error}", R::UNIT))
                })?,
                other => return Err(unexpected(&other, "done")),
            };
            R::check(&mut half)?;
            let mut talk = Talk { tcp: half.tcp, role: local.role, timeout: plan.patience() };
            talk.say(&Message::Checked)?;
            (row, None)
        }
    };
    Outcome::new(half.end, &peers, Some(row.0), row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            command: "lat".into(),
            transport: "rc".into(),
            op: "send".into(),
            size: vec![64],
            iters: vec![10],
            batch: 1,
            depth: 128,
            qps: 1,
            seed: 1,
        }
    }

    #[test]
    fn every_difference_is_named() {
        assert!(hello().compare(&hello()).is_ok());
        let others = [
            ("the command is \"lat\" here and \"bw\"", Hello { command: "bw".into(), ..hello() }),
            ("--transport is \"rc\" here and \"ud\"", Hello { transport: "ud".into(), ..hello() }),
            ("--op is \"send\" here and \"read\"", Hello { op: "read".into(), ..hello() }),
            ("--size is [64] here and [64,65]", Hello { size: vec![64, 65], ..hello() }),
            ("--iters is [10] here and [11]", Hello { iters: vec![11], ..hello() }),
            ("--batch is 1 here and 2", Hello { batch: 2, ..hello() }),
            ("--depth is 128 here and 2", Hello { depth: 2, ..hello() }),
            ("--qps is 1 here and 2", Hello { qps: 2, ..hello() }),
            ("--seed is 1 here and 2", Hello { seed: 2, ..hello() }),
            ("version 2 of the exchange, the peer version 3", Hello { version: 3, ..hello() }),
        ];
        for (told, other) in others {
            let message = hello().compare(&other).unwrap_err().message().unwrap();
            assert!(message.contains(told), "{message}");
        }
    }

    #[test]
    fn lines_are_versioned_json() {
        let line = serde_json::to_string(&Message::Hello(hello())).unwrap();
        assert!(
            line.starts_with(
                r#"{"hello":{"version":2,"command":"lat","transport":"rc","op":"send","size":[64]"#
            ),
            "{line}"
        );
        assert!(matches!(understand(&line), Ok(Message::Hello(theirs)) if theirs == hello()));
        assert!(matches!(understand("\"ready\""), Ok(Message::Ready)));
        let gave_up = understand(r#"{"failed":"no memory"}"#).unwrap_err().message().unwrap();
        assert_eq!(gave_up, "the peer gave up: no memory");
        let foreign = understand("0000:000100:abcdef:00").unwrap_err().message().unwrap();
        assert!(foreign.contains("same --exchange"), "{foreign}");
    }
}
