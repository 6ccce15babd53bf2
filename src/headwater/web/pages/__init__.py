"""The pages, in the order of the navigation. A page is a file here and a template of its name."""

from headwater.web.pages import audit, flow, models, object, put, quarantine, runs, search, tables

PAGES = (
    flow.PAGE,
    search.PAGE,
    put.PAGE,
    tables.PAGE,
    models.PAGE,
    quarantine.PAGE,
    runs.PAGE,
    audit.PAGE,
    object.PAGE,
    object.THREAD,
)
