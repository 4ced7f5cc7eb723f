//! Which processes there are: the host, the command and the variables of each.

use super::Args;
use burn_tpu_runtime::distributed;
use std::process::{Command, Stdio};
use std::str::FromStr;

/// This host: its processes are started without a shell.
const THIS_HOST: &str = "localhost";

/// A host and its number of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    processes: u16,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not HOST or HOST:PROCESSES");
        let (name, processes) = match text.split_once(':') {
            None => (text, 1),
            Some((name, processes)) => (name, processes.parse().ok().filter(|&n| n > 0).ok_or_else(invalid)?),
        };
        // A name that begins with a dash would be an option of ssh.
        if name.is_empty() || name.starts_with('-') {
            return Err(invalid());
        }
        Ok(Self { name: name.into(), processes })
    }
}

impl Host {
    fn is_this(&self) -> bool {
        self.name == THIS_HOST
    }

    /// The name without a user.
    fn address(&self) -> &str {
        self.name.rsplit_once('@').map_or(&self.name, |(_, address)| address)
    }
}

/// Returns the hosts that were asked for.
pub fn hosts(args: &Args) -> Vec<Host> {
    let here = args.processes.map(|processes| Host { name: THIS_HOST.into(), processes });
    here.into_iter().chain(args.hosts.iter().cloned()).collect()
}

/// Returns the number of processes of some hosts.
pub fn count(hosts: &[Host]) -> usize {
    hosts.iter().map(|host| usize::from(host.processes)).sum()
}

/// Returns the hosts that have none of these processes.
pub fn without(hosts: &[Host], processes: &[usize]) -> Vec<Host> {
    let (mut left, mut begin) = (Vec::new(), 0);
    for host in hosts {
        let end = begin + usize::from(host.processes);
        if !processes.iter().any(|process| (begin..end).contains(process)) {
            left.push(host.clone());
        }
        begin = end;
    }
    left
}

/// One process to start.
#[derive(Debug)]
pub struct Process {
    pub index: usize,
    /// Ends when its stdin closes, since a signal does not reach another host.
    pub is_remote: bool,
    words: Vec<String>,
    /// For a process of this host; those of others are in its words.
    variables: Vec<(String, String)>,
}

impl Process {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.is_remote { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// All processes, by index.
pub struct Plan {
    pub processes: Vec<Process>,
}

impl Plan {
    /// Plans the processes of a start, the first of which is 0. If all are on this host, the launcher serves their store;
    /// otherwise the first process does. In a store that is there already, each start has a run of its own.
    pub fn new(args: &Args, hosts: &[Host], start: u32) -> Result<Self, String> {
        let is_here = hosts.iter().all(Host::is_this);
        if !is_here && hosts.iter().any(Host::is_this) {
            return Err(format!("{THIS_HOST} is another host to the others: give this one a name that they reach"));
        }
        let store = match &args.store {
            Some(store) if start == 0 => store.clone(),
            Some(store) => format!("{store}{}restart-{start}", if store.contains('#') { "-" } else { "#" }),
            None if is_here => {
                let served = distributed::serve("127.0.0.1:0").map_err(|error| error.to_string())?;
                format!("redis://{served}")
            }
            None => format!("{}:{}", hosts[0].address(), args.port),
        };
        let given = args.env.iter().map(|text| variable(text)).collect::<Result<Vec<_>, _>>()?;
        let folder = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
        let places: Vec<&Host> =
            hosts.iter().flat_map(|host| std::iter::repeat_n(host, usize::from(host.processes))).collect();
        let count = places.len();
        let processes = places.into_iter().enumerate().map(|(index, host)| {
            let mut variables = given.clone();
            variables.push(("BURN_TPU_PROCESS".into(), format!("{index}/{count}")));
            variables.push(("BURN_TPU_STORE".into(), store.clone()));
            if args.tpu {
                let names: Vec<&str> = hosts.iter().map(Host::address).collect();
                let worker = hosts.iter().position(|other| other == host).unwrap_or_default();
                variables.push(("TPU_WORKER_ID".into(), worker.to_string()));
                variables.push(("TPU_WORKER_HOSTNAMES".into(), names.join(",")));
            }
            if host.is_this() {
                return Process { index, is_remote: false, words: args.program.clone(), variables };
            }
            let line = remote_line(&folder.to_string_lossy(), &variables, &args.program);
            let ssh = args.ssh.split_whitespace().map(str::to_owned);
            let words = ssh.chain([host.name.clone(), line]).collect();
            Process { index, is_remote: true, words, variables: Vec::new() }
        });
        Ok(Self { processes: processes.collect() })
    }
}

/// Parses `NAME=VALUE`, or `NAME` for the value here.
pub fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, std::env::var(text).map_err(|error| format!("--env {text}: {error}"))?),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name {
        Ok((name.to_owned(), value))
    } else {
        Err(format!("--env {text}: {name:?} is not a name of letters, digits and `_`"))
    }
}

/// Returns the line for another host's shell: it runs the program in the same folder, and ends it when its stdin closes,
/// as it does when the launcher or the connection ends.
fn remote_line(folder: &str, variables: &[(String, String)], program: &[String]) -> String {
    let variables = variables.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = variables.chain(program.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ");
    // A job in the background has no stdin of its own in a shell like this, so it is passed on as 3.
    format!(
        "cd {} && {{ exec 3<&0; env {words} 3<&- </dev/null & child=$!; \
         (cat <&3; kill -TERM $child) >/dev/null 2>&1 & watch=$!; \
         wait $child; code=$?; kill $watch; exit $code; }}",
        quoted(folder)
    )
}

/// Returns a word as a shell reads it literally.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        let words = ["launch"].iter().chain(arguments).chain(&["--", "train", "it's"]);
        let args = Cli::try_parse_from(words).map_err(|error| error.to_string())?.args;
        Plan::new(&args, &hosts(&args), 0)
    }

    #[test]
    fn processes_of_this_host_get_their_variables_and_no_shell() {
        let plan = plan(&["--hosts", "localhost:3", "--env", "A=1"]).unwrap();
        assert_eq!(plan.processes.len(), 3);
        let Process { index: 2, is_remote: false, words, variables } = &plan.processes[2] else { panic!() };
        assert_eq!(words, &["train", "it's"]);
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!((value("A"), value("BURN_TPU_PROCESS")), (Some("1"), Some("2/3")));
        assert!(value("BURN_TPU_STORE").unwrap().starts_with("redis://127.0.0.1:"));
    }

    #[test]
    fn processes_of_other_hosts_are_lines_for_ssh() {
        let plan = plan(&["--hosts", "me@a,b:2", "--tpu", "--ssh", "ssh -o BatchMode=yes"]).unwrap();
        let words = |index: usize| plan.processes[index].words.clone();
        assert_eq!(words(0)[..4], ["ssh", "-o", "BatchMode=yes", "me@a"]);
        assert_eq!((&*words(1)[3], &*words(2)[3], plan.processes.len()), ("b", "b", 3));
        for part in [
            "BURN_TPU_PROCESS='2/3' BURN_TPU_STORE='a:8479'",
            "TPU_WORKER_ID='1' TPU_WORKER_HOSTNAMES='a,b'",
            r"'train' 'it'\''s'",
        ] {
            assert!(words(2)[4].contains(part), "no {part} in {}", words(2)[4]);
        }
    }

    #[test]
    fn a_store_that_is_there_is_used() {
        for (given, start, told) in [
            ("redis://c:1#run", 0, "redis://c:1#run"),
            ("redis://c:1#run", 2, "redis://c:1#run-restart-2"),
            ("redis://c:1", 2, "redis://c:1#restart-2"),
        ] {
            let args = Cli::parse_from(["launch", "--processes", "1", "--store", given, "--", "train"]).args;
            let plan = Plan::new(&args, &hosts(&args), start).unwrap();
            assert!(plan.processes[0].variables.contains(&("BURN_TPU_STORE".to_owned(), told.to_owned())));
        }
    }

    #[test]
    fn hosts_are_left_out_by_their_processes() {
        let host = |name: &str, processes| Host { name: name.into(), processes };
        let hosts = [host("a", 1), host("b", 2), host("c", 1)];
        assert_eq!(without(&hosts, &[2]), [host("a", 1), host("c", 1)]);
        assert_eq!(without(&hosts, &[0, 3]), [host("b", 2)]);
        assert_eq!((count(&hosts), count(&without(&hosts, &[]))), (4, 4));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = [
            (vec!["--hosts", "localhost,b"], "another host"),
            (vec!["--hosts", "a:0"], "HOST:PROCESSES"),
            (vec!["--hosts=-oProxyCommand=x"], "HOST:PROCESSES"),
            (vec!["--processes", "0"], "0"),
            (vec![], "--hosts"),
            (vec!["--processes", "1", "--env", "A B=1"], "is not a name"),
        ];
        for (arguments, part) in refused {
            let error = plan(&arguments).map(|_| ()).unwrap_err();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
