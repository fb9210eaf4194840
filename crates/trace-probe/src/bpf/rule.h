/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What the arguments and the result of each call are.
 */
#ifndef ASSAY_RULE_H
#define ASSAY_RULE_H

#include "kernel.h"
#include "record.h"
#include "state.h"

#define CALLS 512 /* upper bound for the numbers of the native table; checked by a test of crates/trace */

/* The bits of the rule of a call; see `probe_rules` in crates/trace. Positions are counted from 1, 0 is none. */
enum {
	RULE_ARGUMENT = 7, /* position of the descriptor */
	RULE_RESULT = 8, /* the result is a descriptor */
	RULE_NEGATIVE_IS_NONE = 16, /* a negative argument is no descriptor, not an invalid one */
	RULE_FIRST_SHIFT = 5, /* position of the first path, or of the address */
	RULE_SECOND_SHIFT = 8, /* position of the second path, or of the length of the address */
	RULE_POSITION = 7,
	RULE_ADDRESS = 1 << 11, /* an address, not a path */
	RULE_IF_SUCCEEDED = 1 << 12, /* it is there only after a success */
	RULE_IF_FAILED = 1 << 13, /* only after a failure */
};

const volatile u16 rules[CALLS] = {};

static __always_inline u16 rule_of(struct thread *thread)
{
	u32 number = thread->number;

	if (thread->flags & FLAG_COMPAT)
		return 0; /* its numbers are from another table */
	return number < CALLS ? rules[number] : 0;
}

static __always_inline u32 first_position(u16 rule)
{
	return rule >> RULE_FIRST_SHIFT & RULE_POSITION;
}

static __always_inline u32 second_position(u16 rule)
{
	return rule >> RULE_SECOND_SHIFT & RULE_POSITION;
}

/* Constant indices: the verifier does not follow a computed one into task storage on older kernels. */
static __always_inline u64 argument(struct thread *thread, u32 position)
{
	switch (position) {
	case 1:
		return thread->args[0];
	case 2:
		return thread->args[1];
	case 3:
		return thread->args[2];
	case 4:
		return thread->args[3];
	case 5:
		return thread->args[4];
	default:
		return thread->args[5];
	}
}

#endif
