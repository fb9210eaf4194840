/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
 *
 * The layout of one record: the probe writes it into the ring of its CPU, and the recorder appends it unchanged to
 * a spool. This header is the only definition; crates/trace reads the same bytes by offset, and a test of
 * crates/trace-probe compares the two. Little endian, no padding, 176 bytes: a multiple of 8, to which the ring
 * rounds, and which keeps the widest fields aligned in a spool. The first 144 bytes are the record of version 1.
 */
#ifndef ASSAY_RECORD_H
#define ASSAY_RECORD_H

/* The numbers are part of the spool format: new ones go at the end. */
enum record_kind {
	RECORD_CALL = 1,
	RECORD_UNFINISHED = 2,
	RECORD_PAGE_FAULT = 3,
	RECORD_OFF_CPU = 4,
	RECORD_FORK = 5,
	RECORD_EXEC = 6,
	RECORD_EXIT = 7,
	/* 8 is a counter mark, which only the recorder writes. */
	RECORD_CONTENT = 9,
};

/* The probe never writes DESCRIPTOR_UNKNOWN: it is in imported traces. */
enum descriptor_kind {
	DESCRIPTOR_NONE = 0,
	DESCRIPTOR_BAD = 1,
	DESCRIPTOR_FILE = 2,
	DESCRIPTOR_DIRECTORY = 3,
	DESCRIPTOR_CHARACTER_DEVICE = 4,
	DESCRIPTOR_BLOCK_DEVICE = 5,
	DESCRIPTOR_PIPE = 6,
	DESCRIPTOR_TCP4 = 7,
	DESCRIPTOR_TCP6 = 8,
	DESCRIPTOR_UDP4 = 9,
	DESCRIPTOR_UDP6 = 10,
	DESCRIPTOR_UNIX_STREAM = 11,
	DESCRIPTOR_UNIX_DATAGRAM = 12,
	DESCRIPTOR_NETLINK = 13,
	DESCRIPTOR_RAW = 14,
	DESCRIPTOR_SOCKET = 15,
	DESCRIPTOR_EVENTFD = 16,
	DESCRIPTOR_EPOLL = 17,
	DESCRIPTOR_TIMERFD = 18,
	DESCRIPTOR_SIGNALFD = 19,
	DESCRIPTOR_INOTIFY = 20,
	DESCRIPTOR_IO_URING = 21,
	DESCRIPTOR_ANONYMOUS = 22,
	DESCRIPTOR_UNKNOWN = 23,
};

/* Argument 1 of a fork. Argument 2 is the number of bytes of anonymous memory that are copied. */
enum fork_memory {
	FORK_COPIES = 1, /* the child has a copy of the memory of its parent */
	FORK_SHARES = 2, /* it uses the same memory: a thread, or a child of vfork */
};

/* Argument 2 of a page fault: what is mapped at the address. */
enum fault_area {
	AREA_UNKNOWN = 0,
	AREA_NONE = 1, /* nothing yet: the fault extends a stack, or is an error */
	AREA_ANONYMOUS = 2,
	AREA_PRIVATE_FILE = 3,
	AREA_SHARED = 4, /* a file, or memory that several processes may share */
};

enum record_flag {
	FLAG_COMPAT = 1,     /* a call of the 32-bit ABI: its number is from another table */
	FLAG_USER_FAULT = 2, /* a page fault in user mode */
	FLAG_THREAD = 4,     /* the fork created a thread, not a process */
	FLAG_WHOLE_PROCESS = 8, /* the exit ended the last thread of its process */
	FLAG_STOPPED = 16,   /* unfinished because the recorder stopped, not because the thread ended */
	FLAG_WAKEUPS = 32,   /* the sleeps and wake-ups of the call were recorded: not in version 1 */
	FLAG_PEER_SAME_CPU = 64,   /* the last packet of the TCP connection arrived on the CPU of the call */
	FLAG_PEER_OTHER_CPU = 128, /* it arrived on another CPU; neither before the first packet */
	FLAG_CUT = 256,      /* the path or address is longer than its content */
};

struct record {
	unsigned long long begin_ns;   /* CLOCK_MONOTONIC when the call was entered or the event happened */
	unsigned long long elapsed_ns; /* until it returned, measured in the kernel */
	unsigned long long blocked_ns; /* off the CPU and not runnable */
	unsigned long long waiting_ns; /* off the CPU but runnable */
	unsigned long long irq_ns;     /* on the CPU, but in interrupts on top of it, except network softirqs */
	unsigned long long softnet_ns; /* on the CPU, in network softirqs on top of it: on loopback, the work of a send */
	unsigned long long args[6];    /* of a call; see record.rs for the other kinds */
	long long result;
	unsigned long long inode;      /* of the descriptor; device number for a device, 0 for none */
	unsigned int process;
	unsigned int thread;
	unsigned int lost;             /* records lost on this CPU since the last kept record */
	unsigned int voluntary;        /* context switches during the call */
	unsigned int involuntary;
	unsigned int faults;           /* page faults during the call */
	unsigned short number;
	unsigned char kind;
	unsigned char descriptor;
	unsigned short cpu;
	unsigned short flags;
	unsigned long long idle_ns;    /* total time that the CPUs of `idle_sleeps` had been idle */
	unsigned long long woken_idle_ns; /* total time that the CPUs of `woken_idle` had been idle */
	unsigned int idle_sleeps;      /* voluntary switches after which the thread continued on an idle CPU */
	unsigned int woken_same;       /* threads woken on the CPU of the call */
	unsigned int woken_busy;       /* threads woken on another CPU, which ran a thread */
	unsigned int woken_idle;       /* threads woken on another CPU, which was idle */
};

#endif
