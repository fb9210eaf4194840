//! What a run saw of the cores that it had: their clock, how often another hardware thread was in the way, how long
//! they took to change what they translate, and how often the scheduler took them away.

use assay_quantity::{Contamination, Fact};

use crate::plan::Finding;

/// Facts of the cores, as far as the samples show them; none where no sample looked.
#[must_use]
pub fn cores(findings: &[Finding]) -> Vec<Fact> {
    let samples = findings.iter().filter_map(|finding| match finding {
        Finding::Measured(measured) => Some(&measured.samples),
        Finding::Unmeasured(_) => None,
    });
    let seen: Vec<Contamination> = samples.flatten().map(|sample| sample.contamination).collect();
    let mut ghz: Vec<f64> =
        seen.iter().filter(|seen| seen.cycle_ns > 0.0).map(|seen| 1.0 / seen.cycle_ns).collect();
    ghz.sort_by(f64::total_cmp);
    let Some(middle) = ghz.get(ghz.len() / 2) else { return Vec::new() };
    let clock = format!(
        "{middle:.2} GHz in the median sample, {:.2} to {:.2} GHz in all",
        ghz[0],
        ghz[ghz.len() - 1]
    );
    let shared = seen.iter().filter(|seen| seen.shared > 0.0).count();
    let sharing =
        format!("another hardware thread was at work beside {shared} of {} samples that looked", ghz.len());
    let fact = |name: &str, value| Fact { name: name.to_owned(), value };
    let mut facts = vec![fact("core clock", clock), fact("core sharing", sharing)];
    let mut us: Vec<f64> =
        seen.iter().map(|seen| seen.translation_ns / 1000.0).filter(|us| *us > 0.0).collect();
    us.sort_by(f64::total_cmp);
    if let [least, .., most] = us.as_slice() {
        let middle = us[us.len() / 2];
        let value = format!("{middle:.2} us in the median sample, {least:.2} to {most:.2} us in all");
        facts.push(fact("change of a translation", value));
    }
    let preempted = seen.iter().filter(|seen| seen.involuntary_switches > 0).count();
    let switches: u64 = seen.iter().map(|seen| seen.involuntary_switches).sum();
    let value = format!("{switches} times, in {preempted} of {} samples", seen.len());
    facts.push(fact("preemption while timing", value));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measured;
    use assay_quantity::{Sample, Unit};

    #[test]
    fn a_run_tells_its_core_clock_and_how_often_it_was_in_company() {
        let sample = |cycle_ns, shared, involuntary_switches| {
            let translation_ns = 5000.0 * cycle_ns;
            let contamination = Contamination {
                cycle_ns,
                shared,
                translation_ns,
                involuntary_switches,
                ..Contamination::default()
            };
            Sample { contamination, ..Sample::default() }
        };
        let samples =
            vec![sample(0.25, 0.0, 0), sample(0.5, 0.4, 3), sample(0.25, 0.0, 0), sample(0.0, 0.0, 4)];
        let primitive = "call.null".parse().unwrap();
        let measured = Measured { primitive, unit: Unit::Nanoseconds, samples, rejected: Vec::new() };
        let facts: Vec<String> =
            cores(&[Finding::Measured(measured)]).into_iter().map(|fact| fact.value).collect();
        assert_eq!(facts[0], "4.00 GHz in the median sample, 2.00 to 4.00 GHz in all");
        assert_eq!(facts[1], "another hardware thread was at work beside 1 of 3 samples that looked");
        assert_eq!(facts[2], "1.25 us in the median sample, 1.25 to 2.50 us in all");
        assert_eq!(facts[3], "7 times, in 2 of 4 samples");
        assert_eq!(cores(&[]), []);
    }
}
