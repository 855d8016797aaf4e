/* A window over Arrow batches without Python: cars and their mean speed per road and minute.
 *
 *   cc -std=c11 -O2 -Inative examples/c/window.c $(find native -name '*.c') -lm -o window && ./window
 *
 * Rows come as Arrow arrays over memory that this program owns; native code borrows them for a call.
 * Results are Arrow arrays that this program owns, and releases when it has printed them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "arrow/column.h"
#include "window/window.h"

#define SECOND INT64_C(1000000)
#define ROWS 4

/* What arrives: time, road, speed. The third row is out of order, which a window does not mind. */
typedef struct batch {
    int64_t time_us[ROWS];
    int32_t road_offsets[ROWS + 1];
    const char *road_bytes;
    double speed[ROWS];
} batch;

static const batch BATCHES[] = {
    {{1 * SECOND, 20 * SECOND, 10 * SECOND, 61 * SECOND}, {0, 1, 3, 4, 6}, "AE4AE4", {50, 100, 70, 90}},
    {{62 * SECOND, 80 * SECOND, 119 * SECOND, 120 * SECOND}, {0, 1, 3, 5, 6}, "AE4E4A", {40, 110, 130, 60}},
};

static void keep_array(struct ArrowArray *array) { array->release = NULL; }
static void keep_schema(struct ArrowSchema *schema) { schema->release = NULL; }

static int fail(const char *what, const md_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->text);
    return EXIT_FAILURE;
}

/* Show a batch to the window as a struct array of three columns; nothing is copied here. */
static md_rc add(md_window *window, const batch *rows, md_error *err) {
    const void *time_buffers[] = {NULL, rows->time_us};
    const void *road_buffers[] = {NULL, rows->road_offsets, rows->road_bytes};
    const void *speed_buffers[] = {NULL, rows->speed};
    struct ArrowArray columns[] = {
        {.length = ROWS, .n_buffers = 2, .buffers = time_buffers, .release = keep_array},
        {.length = ROWS, .n_buffers = 3, .buffers = road_buffers, .release = keep_array},
        {.length = ROWS, .n_buffers = 2, .buffers = speed_buffers, .release = keep_array},
    };
    struct ArrowSchema types[] = {
        {.format = "tsu:UTC", .name = "time", .release = keep_schema},
        {.format = "u", .name = "road", .release = keep_schema},
        {.format = "g", .name = "speed", .release = keep_schema},
    };
    struct ArrowArray *children[] = {&columns[0], &columns[1], &columns[2]};
    struct ArrowSchema *child_types[] = {&types[0], &types[1], &types[2]};
    const void *none[] = {NULL};
    struct ArrowArray array = {.length = ROWS, .n_buffers = 1, .buffers = none, .n_children = 3,
                               .children = children, .release = keep_array};
    struct ArrowSchema schema = {.format = "+s", .name = "", .n_children = 3, .children = child_types,
                                 .release = keep_schema};
    return md_window_add(window, &schema, &array, err);
}

/* Print the rows of a result: window_start, window_end, road, cars, speed. */
static md_rc print(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    md_column columns[5];
    int64_t length;
    md_rc rc = md_columns_view(schema, array, 5, columns, &length, err);
    for (int64_t i = 0; rc == MD_OK && i < length; i++) {
        uint32_t size;
        const uint8_t *road = md_column_bytes(&columns[2], i, &size);
        printf("%3" PRId64 " s - %3" PRId64 " s  %-2.*s  cars %" PRId64 "  speed %.1f\n",
               md_column_i64(&columns[0], i) / SECOND, md_column_i64(&columns[1], i) / SECOND, (int)size,
               (const char *)road, md_column_i64(&columns[3], i), md_column_f64(&columns[4], i));
    }
    return rc;
}

/* Close the windows that end by boundary_us, and print what they give. */
static md_rc close_and_print(md_window *window, int64_t boundary_us, md_error *err) {
    struct ArrowSchema schema;
    struct ArrowArray array;
    md_rc rc = md_window_close(window, boundary_us, err);
    while (rc == MD_OK && md_window_take(window, &schema, &array) == MD_OK) {
        rc = print(&schema, &array, err);
        md_schema_release(&schema);
        md_array_release(&array);
    }
    return rc;
}

int main(void) {
    const md_type keys[] = {MD_UTF8}, inputs[] = {MD_F64};
    const md_aggregate aggregates[] = {{.function = MD_COUNT, .input = -1}, {.function = MD_AVG, .input = 0}};
    const md_window_config config = {.size_us = 60 * SECOND, .advance_us = 60 * SECOND, .keys = keys, .n_keys = 1,
                                     .inputs = inputs, .n_inputs = 1, .aggregates = aggregates,
                                     .n_aggregates = 2, .stage = MD_WHOLE};
    md_error err = {.text = ""};
    md_window *window = NULL;
    if (md_window_new(&config, &window, &err) != MD_OK) return fail("md_window_new", &err);
    md_rc rc = MD_OK;
    for (size_t i = 0; rc == MD_OK && i < sizeof BATCHES / sizeof BATCHES[0]; i++) {
        rc = add(window, &BATCHES[i], &err);
        /* No row below 60 s follows the first batch, and none below 120 s the second. */
        if (rc == MD_OK) rc = close_and_print(window, (int64_t)(i + 1) * 60 * SECOND, &err);
    }
    if (rc == MD_OK) rc = close_and_print(window, 180 * SECOND, &err);
    md_window_free(window);
    return rc == MD_OK ? EXIT_SUCCESS : fail("window", &err);
}
