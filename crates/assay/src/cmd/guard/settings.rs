//! What may change while the guard runs: files, which are read again on SIGHUP.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use assay_proxy::Settings;
use assay_proxy::postgres::users::Users;
use assay_proxy::tls::{Encryption, Identity, MustEncrypt, Trust};
use signal_hook::consts::SIGHUP;

use super::config::classes;
use super::files::{cannot_read, read, read_secret};
use super::messages::Messages;
use super::target::Target;
use crate::cli::GuardArgs;
use crate::interrupt::{Interrupt, register};

/// The files that the settings are made of.
pub struct Files<'a> {
    args: &'a GuardArgs,
    target: &'a Target,
    hung_up: Arc<AtomicBool>,
}

impl<'a> Files<'a> {
    /// Those of the command line. Without any, SIGHUP is an interrupt.
    pub fn new(args: &'a GuardArgs, target: &'a Target, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let hung_up = Arc::new(AtomicBool::new(false));
        if [&args.config, &args.users, &args.tls_cert, &args.server_ca].iter().any(|file| file.is_some()) {
            register(SIGHUP, &hung_up)?;
        } else {
            interrupt.at(SIGHUP)?;
        }
        Ok(Self { args, target, hung_up })
    }

    /// Reads them.
    pub fn read(&self) -> anyhow::Result<Settings> {
        let classes = classes(self.args.config.as_deref(), self.args.max_wait)?;
        let users = self.args.users.as_deref().map(users).transpose()?;
        let clients = match (&self.args.tls_cert, &self.args.tls_key) {
            (Some(certificate), Some(key)) => Some(identity(certificate, key)?),
            _ => None,
        };
        let clients_must = if self.args.require_tls { MustEncrypt::Yes } else { MustEncrypt::No };
        let encryption = Encryption { clients, clients_must, server: self.trust()? };
        Ok(Settings { classes, users, encryption })
    }

    /// Reads them again if that is asked for. Files that cannot be used change nothing.
    pub fn read_again(&self, messages: &Messages) -> Option<Settings> {
        if !self.hung_up.swap(false, Ordering::Relaxed) {
            return None;
        }
        match self.read() {
            Ok(settings) => {
                messages.say("all files were read again".to_owned());
                Some(settings)
            }
            Err(error) => {
                messages.say(format!("{error:#}; all files stay in use as they were read before"));
                None
            }
        }
    }

    /// By what the guard knows the server.
    fn trust(&self) -> anyhow::Result<Option<Trust>> {
        if self.args.server_ca.is_none() && !self.target.must_encrypt {
            return Ok(None);
        }
        let Some(name) = &self.target.name else {
            bail!("a Unix socket is not encrypted; leave out --server-ca and sslmode=require");
        };
        let Some(path) = &self.args.server_ca else {
            return Ok(Some(Trust::in_any(name).with_context(|| format!("cannot use TLS with {name}"))?));
        };
        let trust = Trust::in_authorities(&read(path, "authorities")?, name);
        Ok(Some(trust.with_context(|| format!("cannot check {name} by the authorities {}", path.display()))?))
    }
}

/// The list of users.
fn users(path: &Path) -> anyhow::Result<Users> {
    const WHAT: &str = "list of users";
    let text = String::from_utf8(read_secret(path, WHAT)?).with_context(|| cannot_read(path, WHAT))?;
    Users::parse(&text).with_context(|| cannot_read(path, WHAT))
}

fn identity(certificate: &Path, key: &Path) -> anyhow::Result<Identity> {
    let identity = Identity::new(&read(certificate, "certificate")?, &read_secret(key, "key")?);
    let cannot_use =
        || format!("cannot use the certificate {} with the key {}", certificate.display(), key.display());
    identity.with_context(cannot_use)
}
