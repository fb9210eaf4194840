//! The processor of a partner: `cpus=same` or `cpus=different`.

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Refusal, Setting, Sharing};
use crate::platform::partner::Partner;

/// Returns the processor that an id specifies for the partner; by default that of this process.
pub(crate) fn partner_cpu(id: &PrimitiveId, setting: &Setting) -> Result<usize, Refusal> {
    match id.word(Key::Cpus) {
        "different" => setting.other_cpu.ok_or_else(|| {
            Refusal::Unavailable("this process may use one processor only, but two are required".to_owned())
        }),
        _ => Ok(setting.cpu),
    }
}

/// Returns the processes that are meant to run if a partner runs on this processor.
pub(crate) fn sharing(setting: &Setting, cpu: usize, partner: &Partner) -> Sharing {
    if cpu == setting.cpu {
        Sharing::OneCpu { partners: vec![partner.pid()] }
    } else {
        Sharing::TwoCpus { partner: partner.pid(), cpu }
    }
}
