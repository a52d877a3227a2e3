/* field_table.h - the names of all fields that a canonical body may have: those that are one number or one yes or no and go
 * straight into params, those with a shape of their own, and those that are known and not there yet. Thread: any. */
#ifndef SERVER_API_FIELD_TABLE_H
#define SERVER_API_FIELD_TABLE_H

#include "server/api/params.h"

enum field_type { FIELD_BOOL, FIELD_INT32, FIELD_FLOAT, FIELD_OWN /* a shape of its own */, FIELD_REFUSED };

/* What a canonical body may hold, for whoever describes it. FIELD_REFUSED: null, false, "", [], {} or the number that
 * says nothing. */
struct field_facts {
    const char *name; /* static text */
    enum field_type type;
    double min, max; /* INT32, FLOAT */
    double neutral;  /* REFUSED: 0 or 1; 1: true says nothing, too, and false does not */
};

/* Walks the fields of a kind of body: *at begins with 0. False: there are no more. */
bool field_table_next(enum api_kind kind, size_t *at, struct field_facts *out);

/* Reads the plain ones of out->kind. */
int field_table_read(const cJSON *body, struct params *out, struct api_error *err) must_check;
/* Those that are not there yet are accepted when they say nothing. */
int field_table_check_unsupported(const cJSON *body, enum api_kind kind, struct api_error *err) must_check;
/* Those that are in none of the tables. */
void field_table_find_ignored(const cJSON *body, enum api_kind kind, struct ignored_fields *out);

#endif
