//! Historical machines with their published costs, for comparison with current machines.

use assay_quantity::Machine;
use assay_quantity::format::machine_from_json;

/// Name and file of each machine. The directories under `examples` contain the sources of the figures.
const MACHINES: [(&str, &str); 20] = [
    ("1996/dec-alpha-150", include_str!("../../../examples/lmbench-1996/dec-alpha-150.machine.json")),
    ("1996/dec-alpha-300", include_str!("../../../examples/lmbench-1996/dec-alpha-300.machine.json")),
    ("1996/freebsd-i586", include_str!("../../../examples/lmbench-1996/freebsd-i586.machine.json")),
    ("1996/hp-k210", include_str!("../../../examples/lmbench-1996/hp-k210.machine.json")),
    ("1996/ibm-power2", include_str!("../../../examples/lmbench-1996/ibm-power2.machine.json")),
    ("1996/ibm-powerpc", include_str!("../../../examples/lmbench-1996/ibm-powerpc.machine.json")),
    ("1996/linux-alpha", include_str!("../../../examples/lmbench-1996/linux-alpha.machine.json")),
    ("1996/linux-i586", include_str!("../../../examples/lmbench-1996/linux-i586.machine.json")),
    ("1996/linux-i686", include_str!("../../../examples/lmbench-1996/linux-i686.machine.json")),
    ("1996/sgi-challenge", include_str!("../../../examples/lmbench-1996/sgi-challenge.machine.json")),
    ("1996/sgi-indigo2", include_str!("../../../examples/lmbench-1996/sgi-indigo2.machine.json")),
    ("1996/solaris-i686", include_str!("../../../examples/lmbench-1996/solaris-i686.machine.json")),
    ("1996/sun-sc1000", include_str!("../../../examples/lmbench-1996/sun-sc1000.machine.json")),
    ("1996/sun-ultra1", include_str!("../../../examples/lmbench-1996/sun-ultra1.machine.json")),
    ("1996/unixware-i686", include_str!("../../../examples/lmbench-1996/unixware-i686.machine.json")),
    ("1997/endeav-120", include_str!("../../../examples/thesis-1997/endeav-120.machine.json")),
    ("1997/prem-100", include_str!("../../../examples/thesis-1997/prem-100.machine.json")),
    ("1997/pro-200", include_str!("../../../examples/thesis-1997/pro-200.machine.json")),
    ("1997/ss20-75", include_str!("../../../examples/thesis-1997/ss20-75.machine.json")),
    ("1997/ss20-75x2", include_str!("../../../examples/thesis-1997/ss20-75x2.machine.json")),
];

/// Returns all names, for `--help`.
pub fn names() -> String {
    MACHINES.map(|(name, _)| name).join(", ")
}

/// Loads the machine with this name; `None` if there is none.
pub fn machine(name: &str) -> Option<anyhow::Result<Machine>> {
    let (_, json) = MACHINES.iter().find(|(known, _)| *known == name)?;
    Some(machine_from_json(json).map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_historical_machine_can_be_read_and_has_primitives_of_the_catalogue() {
        for (name, _) in MACHINES {
            let machine = machine(name).unwrap().unwrap();
            let known = machine.costs.keys().filter(|id| assay_bench::find(id).is_some()).count();
            assert!(known * 10 >= machine.costs.len() * 9, "{name}: {known} of {}", machine.costs.len());
        }
        assert!(machine("1996/pdp-11").is_none());
    }
}
