//! What the guard says while it relays. A thread of its own writes it, so that no session waits for the
//! reader of the messages.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use assay_report::visible;

use crate::output;

/// Messages on their way.
pub struct Messages {
    sender: SyncSender<String>,
    writer: JoinHandle<()>,
}

/// Messages that can wait for their reader. There are few; those that find no place are dropped.
const WAITING: usize = 16;

impl Messages {
    /// Begins to write them.
    pub fn begin() -> Self {
        let (sender, messages) = sync_channel::<String>(WAITING);
        // The texts may have parts that a client has sent.
        let writer = thread::spawn(move || messages.iter().for_each(|text| output::say(&visible(&text))));
        Self { sender, writer }
    }

    /// Writes a message.
    pub fn say(&self, text: String) {
        let _ = self.sender.try_send(text);
    }

    /// Waits until all are written.
    pub fn end(self) {
        drop(self.sender);
        self.writer.join().expect("the writer of messages does not fail");
    }
}
