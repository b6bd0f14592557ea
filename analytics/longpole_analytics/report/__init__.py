"""The report of a week: one document, and the same as HTML and as Markdown.

- :mod:`~longpole_analytics.report.weeks`: weeks and schedules in a time zone;
- :mod:`~longpole_analytics.report.reading`: what is read of a store;
- :mod:`~longpole_analytics.report.build`: the document;
- :mod:`~longpole_analytics.report.sections`: one section a file, what it says and how it looks;
- :mod:`~longpole_analytics.report.html`, :mod:`~longpole_analytics.report.markdown`: the forms,
  made from the document alone;
- :mod:`~longpole_analytics.report.watch`: the report that comes by itself, once a week.
"""
