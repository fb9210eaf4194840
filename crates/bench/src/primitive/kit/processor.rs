//! Processors that an id names: `from` and `to`.

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Refusal, Setting};

/// Returns the processor that a key of the id names. Fails if this process may not use it.
pub(crate) fn named(id: &PrimitiveId, key: Key, setting: &Setting) -> Result<usize, Refusal> {
    let number = id.number(key).and_then(|number| usize::try_from(number).ok());
    number.filter(|cpu| setting.cpus.contains(cpu)).ok_or_else(|| {
        Refusal::Unavailable(format!(
            "{} of {id} is none of the processors that this process may use, {:?}; choose one of them",
            key.row().name,
            setting.cpus
        ))
    })
}

/// Returns the two processors of `from` and `to`, which must differ.
pub(crate) fn pair(id: &PrimitiveId, setting: &Setting) -> Result<(usize, usize), Refusal> {
    if setting.cpus.len() < 2 {
        return Err(Refusal::Unavailable(
            "this process may use one processor only, but two are required".to_owned(),
        ));
    }
    let (from, to) = (named(id, Key::From, setting)?, named(id, Key::To, setting)?);
    if from == to {
        return Err(Refusal::Unavailable(format!(
            "from and to are both processor {from}; choose two different ones"
        )));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::describe::CacheSizes;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn pair_of(id: &str, cpus: &[usize]) -> Result<(usize, usize), String> {
        let setting = Setting {
            rng: Pcg64Mcg::seed_from_u64(1),
            cpu: 0,
            cpus: cpus.to_vec(),
            other_cpu: None,
            caches: CacheSizes::default(),
            effective: CacheSizes::default(),
            directory: std::env::temp_dir(),
            shared_directory: std::env::temp_dir(),
            peer: None,
        };
        pair(&id.parse().unwrap(), &setting).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_pair_is_two_processors_that_this_process_may_use() {
        let refused = |id: &str, cpus: &[usize], reason: &str| {
            let refusal = pair_of(id, cpus).unwrap_err();
            assert!(refusal.contains(reason), "{refusal}");
        };
        assert_eq!(pair_of("cache.transfer_line{from=0,to=3}", &[0, 3]), Ok((0, 3)));
        refused(
            "cache.transfer_line{from=0,to=1}",
            &[0, 3],
            "to of cache.transfer_line{from=0,to=1} is none",
        );
        refused("cache.transfer_line{from=3,to=3}", &[0, 3], "from and to are both processor 3");
        refused("cache.transfer_line{from=0,to=1}", &[0], "one processor only");
        refused("cache.transfer_line", &[0, 1], "from of cache.transfer_line is none");
    }
}
