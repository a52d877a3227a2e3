/* version.h - what this build is called. Thread: any. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

const char *flashd_version(void); /* "0.1.0" */
const char *flashd_commit(void);  /* "1f902a1b2c3d"; of sources without git "src-" and their digest */

#endif
