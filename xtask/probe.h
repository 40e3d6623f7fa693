/* Compiles only where a C compiler and the C library's headers are installed. */
#include <stdlib.h>
