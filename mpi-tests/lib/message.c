/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "message.h"

#include <string.h>

#include "program.h"

void message_make(struct message *message, uint64_t seed, uint64_t id, int bytes, int tag,
		  int distance)
{
	message->seed = seed;
	message->id = id;
	message->bytes = bytes;
	message->tag = tag;
	message->to = (world_rank + distance) % world_size;
	message->from = (world_rank + world_size - distance % world_size) % world_size;
}

static uint64_t word(const struct message *message, unsigned round, int from)
{
	return random_mix(random_mix(message->seed ^ message->id) + round * 0x10000u +
			  (uint64_t)from) |
	       1;
}

void message_load(struct message *message, unsigned round)
{
	image_prepare(&message->send, (size_t)message->bytes, 0);
	image_prepare(&message->recv, (size_t)message->bytes, 0);
	for (int i = 0; i < message->bytes; i++)
		message->send.data[i] =
		    (unsigned char)(word(message, round, world_rank) >> i % 57) + (i >> 8);
}

void message_check(struct message *message, unsigned round)
{
	uint64_t from = word(message, round, message->from);

	for (int i = 0; i < message->bytes; i++)
		if (message->recv.data[i] != (unsigned char)((from >> i % 57) + (i >> 8)))
			fail("a message of %d bytes from rank %d is wrong at byte %d",
			     message->bytes, message->from, i);
}
