"""Builds the handbook: `python -m tools.handbook` makes a static site of docs/ in build/handbook/site.

pages.py   collects the pages: docs/, the files of the repository that pages link to, and the reference of the API
api.py     writes the reference of a name from its signature and docstrings
links.py   finds links that lead nowhere, in the pages and in the built site
llms.py    writes llms.txt, the list of pages for language models
"""
