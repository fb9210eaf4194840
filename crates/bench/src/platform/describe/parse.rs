//! Parses the texts of `/proc` and `/sys`: functions from text to values. The tests contain samples of the
//! text.

use std::fmt;

use assay_quantity::Size;

/// Sizes of the data caches; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheSizes {
    /// Level 1, of one core.
    pub l1: Option<Size>,
    /// Level 2.
    pub l2: Option<Size>,
    /// Level 3.
    pub l3: Option<Size>,
}

impl CacheSizes {
    /// Adds the values of one `cache/index*` directory.
    pub fn add(&mut self, level: &str, kind: &str, size: &str) {
        if kind == "Instruction" {
            return;
        }
        let size = cache_size(size);
        match level {
            "1" => self.l1 = size,
            "2" => self.l2 = size,
            "3" => self.l3 = size,
            _ => {}
        }
    }

    /// Returns the smaller size of each level; `None` for a level that is unknown in either.
    #[must_use]
    pub fn smaller(self, other: Self) -> Self {
        let smaller = |a: Option<Size>, b: Option<Size>| a.zip(b).map(|(a, b)| a.min(b));
        Self {
            l1: smaller(self.l1, other.l1),
            l2: smaller(self.l2, other.l2),
            l3: smaller(self.l3, other.l3),
        }
    }

    /// Returns the size of the last known level.
    #[must_use]
    pub fn last(&self) -> Option<Size> {
        self.l3.or(self.l2).or(self.l1)
    }
}

impl fmt::Display for CacheSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |size: Option<Size>| size.map_or("unknown".to_owned(), in_words);
        write!(f, "L1d {}, L2 {}, L3 {}", size(self.l1), size(self.l2), size(self.l3))
    }
}

/// Formats a size for people: exactly if two decimals suffice (`35.75 MiB`), otherwise with one decimal
/// (`23.5 GiB`). Ids and formats write sizes without loss.
#[must_use]
pub fn in_words(size: Size) -> String {
    const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let bytes = size.bytes();
    let (name, shift) = UNITS.into_iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(("B", 0));
    let unit = 1_u128 << shift;
    let hundredths = u128::from(bytes) * 100;
    let hundredths = if hundredths.is_multiple_of(unit) {
        hundredths / unit
    } else {
        // To the nearest tenth.
        (u128::from(bytes) * 20 / unit).div_ceil(2) * 10
    };
    let digits = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!("{} {name}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The value for facts that the machine does not report.
pub const NOT_REPORTED: &str = "not reported";

/// Describes a state of `smt/control`. Virtual machines report `notsupported` regardless of the physical
/// processor.
#[must_use]
pub fn smt(control: &str) -> String {
    match control {
        "forceoff" => "off, and cannot be switched on",
        "notsupported" | "notimplemented" => NOT_REPORTED,
        other => other,
    }
    .to_owned()
}

/// Describes a value of `randomize_va_space`.
#[must_use]
pub fn aslr(value: &str) -> String {
    match value {
        "0" => "off (0)".to_owned(),
        "1" => "on but for the heap (1)".to_owned(),
        other => format!("on ({other})"),
    }
}

/// Describes the value of a switch, 0 or 1.
#[must_use]
pub fn switch(value: &str) -> String {
    match value {
        "0" => "off",
        "1" => "on",
        other => other,
    }
    .to_owned()
}

/// Describes the load averages and the number of runnable tasks of `/proc/loadavg`.
#[must_use]
pub fn load(loadavg: &str) -> Option<String> {
    let mut averages = loadavg.split(' ');
    let [one, five, fifteen] = [averages.next()?, averages.next()?, averages.next()?];
    let runnable = runnable(loadavg)?;
    Some(format!("{one}, {five} and {fifteen} over 1, 5 and 15 minutes; {runnable} runnable with this task"))
}

/// `32K`, `36608K`, `2M`.
fn cache_size(text: &str) -> Option<Size> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).map(Size).filter(|size| size.bytes() > 0)
}

/// Returns the value of the first `name : value` line of `/proc/cpuinfo`.
#[must_use]
pub fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Returns the size in a line of `/proc/meminfo`, `MemTotal:  24683236 kB`.
#[must_use]
pub fn meminfo(text: &str, name: &str) -> Option<Size> {
    let value = field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    value.checked_mul(1 << 10).map(Size)
}

/// Returns the selected word of `always [madvise] never`.
#[must_use]
pub fn bracketed(line: &str) -> Option<&str> {
    line.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// Returns the number of runnable tasks, including the reader: the fourth field of `/proc/loadavg`,
/// `1.48 0.55 0.24 2/90 4711`.
#[must_use]
pub fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// Returns the limit in `cpu.max` in processors, `150000 100000`; `None` for `max 100000`.
#[must_use]
pub fn cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Hypervisors by the signature that they report to their guests.
const SIGNATURES: [(&str, &str); 5] = [
    ("KVMKVMKVM", "KVM"),
    ("TCGTCGTCGTCG", "QEMU without hardware support"),
    ("MicrosoftHv", "Hyper-V"),
    ("VMwareVMware", "VMware"),
    ("XenVMMXenVMM", "Xen"),
];

/// Returns the name of the hypervisor from the three registers of its signature.
#[must_use]
pub fn signature(registers: [u32; 3]) -> String {
    let bytes: Vec<u8> = registers.iter().flat_map(|register| register.to_le_bytes()).collect();
    let text: String =
        bytes.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    SIGNATURES
        .iter()
        .find(|(signature, _)| *signature == text)
        .map_or_else(|| format!("of signature '{text}'"), |(_, name)| (*name).to_owned())
}

/// Summarises the states under `vulnerabilities`: the names of those that are mitigated and of those that are
/// not.
#[must_use]
pub fn mitigations(mut states: Vec<(String, String)>) -> String {
    states.sort();
    let named = |prefix: &str| -> Vec<String> {
        let states = states.iter().filter(|(_, state)| state.starts_with(prefix));
        states.map(|(name, _)| name.clone()).collect()
    };
    let (vulnerable, mitigated) = (named("Vulnerable"), named("Mitigation"));
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    format!("mitigated: {}; vulnerable: {}", list(&mitigated), list(&vulnerable))
}

/// Returns the type of the file system that contains a path, from `/proc/self/mountinfo` (proc(5)).
#[must_use]
pub fn mount_type<'a>(mountinfo: &'a str, path: &str) -> Option<&'a str> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = before.split(' ').nth(4)?;
            Some((point, after.split(' ').next()?))
        })
        .filter(|(point, _)| {
            let rest = path.strip_prefix(point);
            *point == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        // A later mount hides an earlier one at the same place, which is what `max_by_key` prefers.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_directories_become_sizes_and_instruction_caches_do_not() {
        let mut sizes = CacheSizes::default();
        sizes.add("1", "Data", "32K");
        sizes.add("1", "Instruction", "64K");
        sizes.add("2", "Unified", "1024K");
        sizes.add("3", "Unified", "36608K");
        assert_eq!(sizes.to_string(), "L1d 32 KiB, L2 1 MiB, L3 35.75 MiB");
        assert_eq!(sizes.last(), Some(Size::kib(36608)));
        assert_eq!(CacheSizes::default().to_string(), "L1d unknown, L2 unknown, L3 unknown");
        assert_eq!(cache_size("0K"), None);
        assert_eq!(cache_size("big"), None);
    }

    #[test]
    fn sizes_are_formatted_for_people() {
        let written = |kib: u64| in_words(Size::kib(kib));
        assert_eq!(written(24_684_096), "23.5 GiB");
        assert_eq!(written(36_608), "35.75 MiB");
        assert_eq!([written(32), written(1024), written(4 << 20)], ["32 KiB", "1 MiB", "4 GiB"]);
        assert_eq!(
            [in_words(Size(0)), in_words(Size(1000)), in_words(Size(1025))],
            ["0 B", "1000 B", "1 KiB"]
        );
        assert_eq!(in_words(Size(u64::MAX)), "17179869184 GiB");
    }

    #[test]
    fn states_are_described_in_words() {
        assert_eq!([smt("on"), smt("notsupported")], ["on", "not reported"]);
        assert_eq!([aslr("2"), aslr("0")], ["on (2)", "off (0)"]);
        assert_eq!([switch("1"), switch("0")], ["on", "off"]);
        let load = |line| load(line).unwrap_or_default();
        assert_eq!(
            load("1.48 0.55 0.24 2/90 4711\n"),
            "1.48, 0.55 and 0.24 over 1, 5 and 15 minutes; 2 runnable with this task"
        );
        assert_eq!(load("1.48 0.55"), "");
    }

    #[test]
    fn fields_of_cpuinfo_and_meminfo_are_found_by_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) @ 2.50GHz\nmicrocode\t: 0x1\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Intel(R) Xeon(R) @ 2.50GHz"));
        assert_eq!(field(cpuinfo, "flags"), None);
        let text = "MemTotal:       24683236 kB\nMemFree:        1 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(Size::kib(24_683_236)));
        assert_eq!(meminfo("MemTotal: lots", "MemTotal"), None);
    }

    #[test]
    fn choices_and_limits_are_read_as_the_kernel_writes_them() {
        assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
        assert_eq!(runnable("1.48 0.55 0.24 2/90 4711"), Some(2));
        assert_eq!(cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(cpu_max("max 100000\n"), None);
        assert_eq!(signature([0x4b4d_564b, 0x564b_4d56, 0x4d]), "KVM");
        assert_eq!(signature([0x41, 0, 0]), "of signature 'A'");
    }

    #[test]
    fn the_longest_mount_point_that_contains_the_path_wins() {
        let mounts =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:5 / /tmp rw,noexec shared:1 - tmpfs t rw\n";
        assert_eq!(mount_type(mounts, "/tmp/a"), Some("tmpfs"));
        assert_eq!(mount_type(mounts, "/tmpfile"), Some("ext4"));
        assert_eq!(mount_type("", "/tmp"), None);
    }

    #[test]
    fn vulnerable_and_mitigated_are_distinguished_and_the_unaffected_are_omitted() {
        let state = |name: &str, state: &str| (name.to_owned(), state.to_owned());
        let states = vec![
            state("spectre_v2", "Mitigation: Enhanced IBRS\n"),
            state("meltdown", "Not affected\n"),
            state("mds", "Vulnerable: no microcode\n"),
        ];
        assert_eq!(mitigations(states), "mitigated: spectre_v2; vulnerable: mds");
    }
}
