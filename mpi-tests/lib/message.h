/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A message from each rank of MPI_COMM_WORLD to another one, around a ring. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include "image.h"
#include "waiting.h"

struct message {
	uint64_t seed, id;
	int bytes, tag, to, from;
	struct image send, recv;
};

void message_make(struct message *message, uint64_t seed, uint64_t id, int bytes, int tag,
		  int distance);
void message_load(struct message *message, unsigned round);
void message_check(struct message *message, unsigned round);

#endif
