/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The probe: one record per system call of a traced thread, written when the call ends, with the time that it spent
 * on the CPU, blocked, waiting for a CPU, in interrupts and in network softirqs; and records for page faults, time
 * off the CPU outside calls, forks, execs and exits. A thread is traced if it has an entry in the task storage
 * `threads`: children inherit an entry, and it is freed with its task. Each CPU has its own ring, since a shared
 * ring is a lock on which all CPUs contend. The probe follows Brown 1997, chapter 3 (ktrace), and adds the split of
 * the time.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"
#include "area.h"
#include "content.h"
#include "descriptor.h"
#include "rule.h"
#include "state.h"
#include "wakeup.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Attempts to read the clock without an interrupt in between: even two interrupts are hardly ever seen. */
#define TAKE_ATTEMPTS 3

const volatile u32 tracer = 0;    /* thread group that is never traced */

/* Never read: adds the layout to the object's type information, where the layout test finds it. */
const volatile struct record record_layout = {};

u32 root = 0;          /* root thread group of the tree */
u64 marked = 0;        /* threads added by the iterations over all tasks */
u64 untracked = 0;     /* threads of the tree for which no entry could be allocated */

/* ------------------------------------------------------------------------------------------- system calls */

static __always_inline void copy_arguments(struct thread *thread, struct pt_regs *regs)
{
	if (thread->flags & FLAG_COMPAT) {
		thread->args[0] = (u32)regs->bx;
		thread->args[1] = (u32)regs->cx;
		thread->args[2] = (u32)regs->dx;
		thread->args[3] = (u32)regs->si;
		thread->args[4] = (u32)regs->di;
		thread->args[5] = (u32)regs->bp;
		return;
	}
	thread->args[0] = regs->di;
	thread->args[1] = regs->si;
	thread->args[2] = regs->dx;
	thread->args[3] = regs->r10;
	thread->args[4] = regs->r8;
	thread->args[5] = regs->r9;
}

/* Returns false if no argument of the call is a descriptor. */
static __always_inline bool descriptor_argument(struct thread *thread, int *number)
{
	u16 rule = rule_of(thread);
	u32 position = rule & RULE_ARGUMENT;

	if (!position)
		return false;
	*number = argument(thread, position);
	return *number >= 0 || !(rule & RULE_NEGATIVE_IS_NONE);
}

static __always_inline void classify_argument(struct task_struct *task, struct thread *thread)
{
	int number;

	thread->descriptor = DESCRIPTOR_NONE;
	thread->inode = 0;
	if (descriptor_argument(thread, &number))
		classify(task, thread, number);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter_call, struct pt_regs *regs, long id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = traced(task);

	if (!thread)
		return 0;
	thread->number = id;
	thread->flags = (task->thread_info.status & TS_COMPAT) ? FLAG_COMPAT : 0;
	copy_arguments(thread, regs);
	note_room(thread);
	classify_argument(task, thread);
	thread->blocked_ns = 0;
	thread->waiting_ns = 0;
	thread->irq_ns = 0;
	thread->softnet_ns = 0;
	thread->voluntary = 0;
	thread->involuntary = 0;
	thread->faults = 0;
	forget_wakeups(thread);
	thread->begin_ns = bpf_ktime_get_ns(); /* late: the code above is not part of the call's time */
	thread->in_call = 1; /* last: an interrupt before `begin_ns` must not be charged to the call */
	return 0;
}

/* Ends the call, so that no more time is charged to it, and returns its end time. An interrupt between the caller's
 * read of the clock and this point was charged to the call, so the elapsed time includes it. */
static __always_inline u64 end_call(struct thread *thread, u64 now_ns)
{
	struct cpu *cpu = this_cpu();
	u64 charged_ns;

	thread->in_call = 0;
	barrier(); /* for interrupts on this CPU, which observe the program order */
	charged_ns = cpu ? cpu->layer_since_ns : 0;
	return charged_ns > now_ns ? charged_ns : now_ns;
}

/* An exit without an enter is a child's first return, or a call that was in flight when the probe was attached. */
SEC("tp_btf/sys_exit")
int BPF_PROG(leave_call, struct pt_regs *regs, long result)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = traced(task);
	int number;

	if (!thread)
		return 0;
	if (!thread->in_call)
		return 0;
	now_ns = end_call(thread, now_ns);
	keep_contents(task, thread, result, now_ns);
	if (result >= 0 && (rule_of(thread) & RULE_RESULT))
		classify(task, thread, result);
	else if (thread->voluntary && descriptor_argument(thread, &number))
		locate_peer_again(task, thread, number);
	keep_call(task, thread, RECORD_CALL, 0, result, now_ns);
	return 0;
}

/* --------------------------------------------------------------------------------------------- scheduling */

static __always_inline void charge_off_cpu(struct thread *thread, u64 now_ns)
{
	u64 spell_ns = now_ns - thread->off_since_ns;

	if (thread->off_state == BLOCKED) {
		thread->blocked_ns += spell_ns;
		thread->off_blocked_ns += spell_ns;
	} else {
		thread->waiting_ns += spell_ns;
	}
	thread->off_since_ns = now_ns;
}

static __always_inline void leave_cpu(struct thread *thread, u8 state, u64 now_ns)
{
	thread->off_since_ns = now_ns;
	thread->off_begin_ns = now_ns;
	thread->off_blocked_ns = 0;
	thread->off_state = state;
}

/* `idle_ns` is how long the CPU had been idle, 0 if it was not. */
static __always_inline void enter_cpu(struct task_struct *task, struct thread *thread, u64 idle_ns, u64 now_ns)
{
	struct record *record;
	void *ring;

	if (thread->off_state == ON_CPU)
		return; /* it was off the CPU when the probe was attached */
	charge_off_cpu(thread, now_ns);
	thread->off_state = ON_CPU;
	if (thread->in_call) {
		if (idle_ns && thread->off_blocked_ns) {
			thread->idle_sleeps++;
			thread->idle_ns += idle_ns;
		}
		return;
	}
	record = make(&ring, task, RECORD_OFF_CPU);
	if (!record)
		return;
	record->begin_ns = thread->off_begin_ns;
	record->elapsed_ns = now_ns - thread->off_begin_ns;
	record->blocked_ns = thread->off_blocked_ns;
	record->waiting_ns = record->elapsed_ns - record->blocked_ns;
	record->voluntary = record->blocked_ns ? 1 : 0;
	record->involuntary = record->blocked_ns ? 0 : 1;
	keep(ring, record);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_task, bool preempt, struct task_struct *from, struct task_struct *to, unsigned int state)
{
	struct thread *thread = traced(from);
	u64 idle_ns = change_idle(from, to);

	if (thread) {
		bool runnable = preempt || state == 0;

		if (runnable)
			thread->involuntary++;
		else
			thread->voluntary++;
		leave_cpu(thread, runnable ? WAITING : BLOCKED, bpf_ktime_get_ns());
	}
	thread = traced(to);
	if (thread)
		enter_cpu(to, thread, idle_ns, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(wake_task, struct task_struct *task)
{
	struct thread *thread = traced(task);

	if (!thread)
		return 0;
	if (thread->off_state != BLOCKED)
		return 0;
	charge_off_cpu(thread, bpf_ktime_get_ns());
	thread->off_state = WAITING;
	return 0;
}

/* On the CPU of the waker, before the kernel chooses a CPU for the thread. `sched_wakeup` may follow on that CPU. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking_task, struct task_struct *task)
{
	count_wakeup(task);
	return 0;
}

/* Between the two, if the kernel chooses another CPU than the last one of the thread. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrate_task, struct task_struct *task, int cpu)
{
	redirect_wakeup(task, cpu);
	return 0;
}

/* ---------------------------------------------------------------------------------- processes and threads */

static __always_inline struct thread *adopt(struct task_struct *task)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		__sync_fetch_and_add(&untracked, 1);
	return thread;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(fork_task, struct task_struct *parent, struct task_struct *child)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct record *record;
	struct thread *thread;
	void *ring;

	if (!traced(parent))
		return 0;
	record = make(&ring, parent, RECORD_FORK);
	if (record) {
		record->begin_ns = now_ns;
		record->result = child->pid;
		record->args[0] = child->tgid;
		if (child->mm == parent->mm) {
			record->args[1] = FORK_SHARES;
		} else {
			record->args[1] = FORK_COPIES;
			record->args[2] = anonymous_bytes(parent);
		}
		record->flags = child->tgid == parent->tgid ? FLAG_THREAD : 0;
		keep(ring, record);
	}
	thread = adopt(child);
	if (thread)
		leave_cpu(thread, WAITING, now_ns); /* until it first runs */
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec_task, struct task_struct *task, int former, struct linux_binprm *program)
{
	struct record *record;
	void *ring;

	if (!traced(task))
		return 0;
	record = make(&ring, task, RECORD_EXEC);
	if (!record)
		return 0;
	record->begin_ns = bpf_ktime_get_ns();
	record->result = former;
	bpf_probe_read_kernel_str(record->args, sizeof(record->args), program->filename);
	keep(ring, record);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exit_task, struct task_struct *task)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct thread *thread = traced(task);
	struct record *record;
	void *ring;

	if (!thread)
		return 0;
	if (thread->in_call) {
		now_ns = end_call(thread, now_ns);
		keep_call(task, thread, RECORD_UNFINISHED, 0, 0, now_ns);
	}
	record = make(&ring, task, RECORD_EXIT);
	if (!record)
		return 0;
	record->begin_ns = now_ns;
	record->result = task->exit_code;
	record->flags = task->signal->live.counter == 0 ? FLAG_WHOLE_PROCESS : 0;
	keep(ring, record);
	return 0;
}

/* ------------------------------------------------------------------------------------ faults, interrupts */

static __always_inline int fault(unsigned long address, unsigned long error, u16 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = traced(task);
	struct record *record;
	void *ring;

	if (!thread)
		return 0;
	if (thread->in_call)
		thread->faults++;
	record = make(&ring, task, RECORD_PAGE_FAULT);
	if (!record)
		return 0;
	record->begin_ns = bpf_ktime_get_ns();
	record->args[0] = address;
	record->args[1] = error;
	record->args[2] = area_kind(task, address);
	record->flags = flags;
	keep(ring, record);
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(fault_user, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	return fault(address, error, FLAG_USER_FAULT);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(fault_kernel, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	struct cpu *cpu = this_cpu();

	if (!cpu || cpu->reads_user)
		return 0;
	return fault(address, error, 0);
}

/* Interrupts nest and also run on top of a network softirq; time belongs to the topmost layer. So every change of
 * layers first takes the time since the previous change and charges it to the layer that was topmost until now. The
 * change of a softirq may itself be interrupted: then that time is already taken, and the rest is taken again. */
static __always_inline u64 take_layer(struct cpu *cpu)
{
	int attempt;

	for (attempt = 0; attempt < TAKE_ATTEMPTS; attempt++) {
		u64 since_ns = *(volatile u64 *)&cpu->layer_since_ns;
		u64 now_ns = bpf_ktime_get_ns();

		if (__sync_val_compare_and_swap(&cpu->layer_since_ns, since_ns, now_ns) == since_ns)
			return now_ns - since_ns;
	}
	return 0;
}

static __always_inline void charge_layer(struct cpu *cpu)
{
	u64 layer_ns = take_layer(cpu);
	struct thread *thread;

	if (!cpu->irq_depth && !cpu->in_softnet)
		return;
	thread = traced(bpf_get_current_task_btf());
	if (!thread)
		return;
	if (!thread->in_call)
		return;
	/* Atomic, since an interrupt may charge the same thread concurrently. */
	if (cpu->irq_depth)
		__sync_fetch_and_add(&thread->irq_ns, layer_ns);
	else
		__sync_fetch_and_add(&thread->softnet_ns, layer_ns);
}

static __always_inline int interrupt_begins(void)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	charge_layer(cpu);
	cpu->irq_depth++;
	return 0;
}

static __always_inline int interrupt_ends(void)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (cpu->irq_depth == 0)
		return 0; /* it began before the probe was attached */
	charge_layer(cpu);
	cpu->irq_depth--;
	return 0;
}

/* Softirqs do not nest. */
static __always_inline int softnet_changes(bool begins)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	charge_layer(cpu);
	cpu->in_softnet = begins;
	return 0;
}

static __always_inline bool is_softnet(unsigned int vector)
{
	return vector == NET_TX_SOFTIRQ || vector == NET_RX_SOFTIRQ;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_begins)
{
	return interrupt_begins();
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_ends)
{
	return interrupt_ends();
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	return is_softnet(vector) ? softnet_changes(true) : interrupt_begins();
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int vector)
{
	return is_softnet(vector) ? softnet_changes(false) : interrupt_ends();
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(timer_begins)
{
	return interrupt_begins();
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(timer_ends)
{
	return interrupt_ends();
}

/* ------------------------------------------------------------------------------------------ walks over tasks */

/* Adds the part of the tree below `root` that existed before the probe; must be repeated until it marks no thread.
 * The fork program is already attached, so that a new child of a marked parent is marked too. */
SEC("iter/task")
int mark_tree(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	bool member;

	if (!task)
		return 0;
	if (task->tgid == tracer)
		return 0;
	if (traced(task))
		return 0;
	member = task->tgid == root;
	if (!member)
		member = traced(task->real_parent) != NULL;
	if (!member)
		member = traced(task->group_leader) != NULL;
	if (member && adopt(task))
		__sync_fetch_and_add(&marked, 1);
	return 0;
}

/* Writes the calls that were in flight when the recorder stopped, in their state at that time. All other programs
 * are detached by now, so that no other program counts records on this CPU. A program that ran at the time of the
 * stop may have stored a later time: then the call ends there, since no part of a call is longer than the call. */
SEC("iter/task")
int flush_calls(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u64 end_ns = stopped_ns;
	struct thread *thread;
	u64 parts_ns;

	if (!task)
		return 0;
	thread = entry(task);
	if (!thread)
		return 0;
	if (!thread->in_call)
		return 0;
	thread->in_call = 0;
	if (thread->begin_ns > end_ns)
		return 0;
	if (thread->off_state != ON_CPU && thread->off_since_ns < end_ns)
		charge_off_cpu(thread, end_ns);
	parts_ns = thread->blocked_ns + thread->waiting_ns + thread->irq_ns + thread->softnet_ns;
	if (parts_ns > end_ns - thread->begin_ns)
		end_ns = thread->begin_ns + parts_ns;
	keep_call(task, thread, RECORD_UNFINISHED, FLAG_STOPPED, 0, end_ns);
	return 0;
}
