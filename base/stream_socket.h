/* stream_socket.h - a socket of libuv's that is of TCP or of a path (Unix), which is known only at run time. Thread: the loop's. */
#ifndef BASE_STREAM_SOCKET_H
#define BASE_STREAM_SOCKET_H

#include <uv.h>

union stream_socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

#endif
