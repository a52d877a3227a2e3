/* tenant_group.h - tenants that are told apart where each has a place in a table: clients make ids without end, and share places then.
 * Thread: pure. */
#ifndef SERVER_TENANT_GROUP_H
#define SERVER_TENANT_GROUP_H

#include <stddef.h>
#include <stdint.h>

enum { TENANT_GROUPS = 256 };

/* Of a tenant's id, whose lowest bit is set as it is not 0. */
static inline size_t tenant_group(uint64_t tenant)
{
    return (size_t)(tenant >> 1) % TENANT_GROUPS;
}

/* One that is in it. */
static inline uint64_t tenant_of_group(size_t group)
{
    return (uint64_t)group << 1 | 1;
}

#endif
